"""What PostgreSQL plans for the queries of a workload, and how plans of two databases compare. Needs no source."""
