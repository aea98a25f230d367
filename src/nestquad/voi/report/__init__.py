"""Analysis of tables: results, figures and report."""
