# Run by tests/voi/test_voi_r.py, and by R CMD check where nestquad is installed.
library(nestquad)
set.seed(1)
n <- 4000
gain <- function(m, s) m * pnorm(m / s) + s * dnorm(m / s) - max(m, 0)
inputs <- data.frame(p1 = rnorm(n, 1, 1), p2 = rnorm(n, 0, 2), `a, b` = rnorm(n), check.names = FALSE)
benefit <- inputs$p1 - inputs$p2
outputs <- data.frame(old = 0 * benefit, new = benefit)
covers <- function(table, truth) stopifnot(table$lower <= truth, truth <= table$upper)

all <- evpi(outputs)
stopifnot(identical(names(all), c("evpi", "se", "lower", "upper")))
covers(all, gain(1, sqrt(5)))

one <- evppi(outputs, inputs)
stopifnot(identical(names(one), c("pars", "evppi", "se", "lower", "upper", "flags")),
          identical(one$pars, c("p1", "p2", "a, b")))
covers(one[1, ], gain(1, 1))
covers(one[2, ], gain(1, 2))
stopifnot(grepl("not distinguishable", one$flags[3]))

sets <- evppi(outputs, inputs, list(c("p1", "p2"), "p2", c("a, b", "p1")))
stopifnot(identical(sets$pars, c("p1,p2", "p2", "a, b,p1")))
covers(sets[1, ], gain(1, sqrt(5)))

# Lists as voi and BCEA have them, at several values of k.
cea <- list(c = cbind(0 * benefit, -benefit), e = cbind(0 * benefit + 1, 1 + inputs$p2 / 100),
            k = c(0, 100))
curve <- evppi(cea, inputs, "p2")
stopifnot(identical(names(curve)[1:3], c("pars", "k", "evppi")), identical(curve$k, c(0, 100)))
covers(curve[1, ], gain(1, 2))
stopifnot(curve$evppi[2] < 1e-6) # p2 cancels

bcea <- structure(c(cea, list(interventions = c("old", "new"))), class = c("bcea", "list"))
stopifnot(all.equal(evppi(bcea, inputs, "p2"), curve))

trial <- evsi(outputs, inputs, "normal_known", "p2", n = c(4, 36), sd = 4)
stopifnot(identical(names(trial)[1:2], c("n", "evsi")))
covers(trial[1, ], gain(1, sqrt(2)))
covers(trial[2, ], gain(1, sqrt(3.6)))
net <- enbs(trial, costs_setup = 100, costs_pp = 1, pop = 500, time = 2.5, dis = 0.05, wait = 1)
people <- 500 * (1 / 1.05 + 0.5 / 1.05^2)
stopifnot(all.equal(net$enbs, trial$evsi * people - 100 - c(4, 36)), sum(net$enbsmax) == 1)

wrong <- tryCatch(evppi(outputs, inputs, "p3"), error = conditionMessage)
stopifnot(grepl("p3 not among", wrong))
short <- tryCatch(evppi(outputs[1:10, ], inputs), error = conditionMessage)
stopifnot(grepl("rows", short))
cat("all of R is well\n")
