"""What nestquad promises, measured: ``python -m benchmarks --out docs`` writes docs/benchmarks.md.

A study (one module in `benchmarks.studies`) runs, and returns tables and verdicts. They are saved
as JSON, and the page and its figures are made from all that is saved, so that rerunning one study
does not cost the others. The long studies also keep every run, a line each in a CSV file, and make
only those that are missing: `_ledger` is the file, `_collect` runs what it lacks, `_cells` sums
up, `_promises` judges.
"""
