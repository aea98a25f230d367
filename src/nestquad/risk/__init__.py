"""Risk: value at risk, expected shortfall, exceedance probabilities and exposure of J."""
