"""How tables refer to each other: fanouts and the ties between the attributes of parents and children."""
