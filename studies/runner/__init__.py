"""The runner of all studies: tasks, a ledger of runs, processes, verdicts, pages.

A study lists tasks (`ledger`); `collect` runs those that the ledger lacks, in processes; tables,
figures and verdicts are made from its rows (`result`). A `study` returns a result, which is saved
as JSON, and all results together make a `page`.
"""
