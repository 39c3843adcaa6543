"""Split the names of tables and columns into words, and know the words that stand for persons."""

from __future__ import annotations

import re

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

PERSONS = re.compile(
    r"\b(person|people|customer|client|user|employee|staff|patient|student|pupil|member|contact|author|actor|artist|"
    r"owner|guest|driver|tenant|voter|resident|subscriber|passenger|donor|teacher|doctor|nurse|household|family|"
    r"families|individual|citizen|inhabitant|participant|respondent|applicant|claimant|beneficiary|beneficiaries|"
    r"policy ?holder|account ?holder|borrower|debtor|heir|victim|witness|witnesses|suspect|offender|convict|"
    r"prisoner|inmate|detainee|defendant|plaintiff|refugee|migrant|immigrant|soldier|veteran|survivor|casualty|"
    r"casualties|worker|colleague|trainee|intern|apprentice|graduate|alumni|lecturer|professor|coach|coaches|"
    r"athlete|player|children|spouse|relative|guardian|carer|caregiver|friend|neighbou?r|infant|adult|physician|"
    r"surgeon|dentist|therapist|midwife|midwives|visitor|travell?er|tourist|buyer|shopper|recipient|volunteer|"
    r"speaker|candidate|lawyer|officer)s?\b"
)


def words_of(name: str) -> str:
    """Return the words of a name in lower case, joined by blanks.

    >>> words_of("ContactEMail"), words_of("ship_address2"), words_of("nameFirst")
    ('contact e mail', 'ship address 2', 'name first')
    """
    return " ".join(_WORDS.findall(name)).lower()


def singular(name: str) -> str:
    """Return a plain singular of a name in lower case, for comparing names of tables with those of columns.

    >>> singular("Customers"), singular("people"), singular("categories"), singular("Address")
    ('customer', 'person', 'category', 'address')
    """
    lower = name.casefold()
    for plural, one in (("people", "person"), ("ies", "y"), ("sses", "ss")):
        if lower.endswith(plural):
            return lower.removesuffix(plural) + one
    return lower.removesuffix("s") if not lower.endswith("ss") else lower
