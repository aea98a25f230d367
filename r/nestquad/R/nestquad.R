# Value of information by the command `nestquad voi`: tables go out as CSV files, and come back so.

#' The command that runs nestquad
#'
#' The option `nestquad.command`, the variable NESTQUAD, or `nestquad` on the path. Several words
#' are a program and its first arguments, as `c("python3", "-m", "nestquad")`.
nestquad_command <- function() {
  given <- getOption("nestquad.command")
  if (is.null(given) && nzchar(Sys.getenv("NESTQUAD"))) {
    given <- strsplit(Sys.getenv("NESTQUAD"), " ", fixed = TRUE)[[1]]
  }
  if (is.null(given)) given <- Sys.which("nestquad")[[1]]
  if (!nzchar(given[1])) {
    stop("nestquad is not found. Install it with pip, or say where it is: ",
         "options(nestquad.command = c(\"python3\", \"-m\", \"nestquad\"))", call. = FALSE)
  }
  given
}

# Costs, effects and willingness to pay, from a list (c, e, k), an object of BCEA (e, c, k), or a
# data frame of net benefits, which are effects at a willingness to pay of 1 without costs.
as_outputs <- function(outputs) {
  if (is.list(outputs) && !is.data.frame(outputs) && all(c("c", "e") %in% names(outputs))) {
    k <- outputs$k
    if (is.null(k)) stop("outputs: no willingness to pay k", call. = FALSE)
    costs <- as.data.frame(outputs$c)
    effects <- as.data.frame(outputs$e)
    labels <- outputs$interventions
    if (is.null(labels) || length(labels) != ncol(costs)) labels <- colnames(outputs$c)
    if (is.null(labels)) labels <- paste("option", seq_len(ncol(costs)))
    return(list(costs = setNames(costs, labels), effects = setNames(effects, labels),
                wtp = as.numeric(k), net = FALSE))
  }
  benefits <- as.data.frame(outputs)
  if (!all(vapply(benefits, is.numeric, TRUE)) || ncol(benefits) < 2) {
    stop("outputs: expected a list of c, e and k, an object of BCEA, or a data frame of net ",
         "benefits with a column for each option", call. = FALSE)
  }
  if (is.null(colnames(outputs))) names(benefits) <- paste("option", seq_len(ncol(benefits)))
  list(costs = 0 * benefits, effects = benefits, wtp = 1, net = TRUE)
}

# A name in quotes, as the command takes names with commas and colons.
quoted <- function(names) paste0("\"", names, "\"", collapse = ",")

run_voi <- function(outputs, inputs, ...) {
  known <- as_outputs(outputs)
  folder <- tempfile("nestquad")
  dir.create(folder)
  on.exit(unlink(folder, recursive = TRUE))
  files <- file.path(folder, c("parameters.csv", "costs.csv", "effects.csv"))
  tables <- list(as.data.frame(inputs), known$costs, known$effects)
  for (j in 1:3) write.csv(format_numbers(tables[[j]]), files[j], row.names = FALSE)
  arguments <- c("voi", "--parameters", files[1], "--costs", files[2], "--effects", files[3],
                 "--as-given", "--wtp", format(known$wtp, digits = 15, scientific = FALSE,
                 trim = TRUE), "--tables", file.path(folder, "out"), ...)
  command <- nestquad_command()
  errors <- file.path(folder, "errors")
  status <- system2(command[1], shQuote(c(command[-1], arguments)), stdout = FALSE,
                    stderr = errors)
  if (status != 0) {
    said <- if (file.exists(errors)) readLines(errors, warn = FALSE) else ""
    stop(paste(said, collapse = "\n"), call. = FALSE)
  }
  read <- function(name) {
    file <- file.path(folder, "out", paste0(name, ".csv"))
    if (!file.exists(file)) return(NULL)
    table <- read.csv(file, check.names = FALSE, encoding = "UTF-8")
    names(table)[names(table) == "wtp"] <- "k"
    if (known$net) table$k <- NULL
    # A leading apostrophe keeps spreadsheets from taking a name for a formula.
    if ("pars" %in% names(table)) table$pars <- sub("^'([=+@-])", "\\1", table$pars)
    if ("flags" %in% names(table)) table$flags[is.na(table$flags)] <- ""
    table
  }
  lapply(setNames(nm = c("evpi", "singles", "groups", "evsi")), read)
}

# All digits of numbers: write.csv keeps 15 of 17.
format_numbers <- function(table) {
  numeric <- vapply(table, is.numeric, TRUE)
  table[numeric] <- lapply(table[numeric], function(x) sprintf("%.17g", x))
  as.data.frame(lapply(table, function(x) noquote(as.character(x))), check.names = FALSE)
}

pick <- function(table, columns) {
  row.names(table) <- NULL
  table[intersect(columns, names(table))]
}

#' Expected value of perfect information
#'
#' @param outputs A list of `c`, `e` and `k`, an object of BCEA, or a data frame of net benefits.
#' @return A data frame: k, evpi, se, lower, upper; without k for net benefits.
evpi <- function(outputs) {
  n <- nrow(as_outputs(outputs)$effects)
  found <- run_voi(outputs, data.frame(unused = seq_len(n) %% 2))
  pick(found$evpi, c("k", "evpi", "se", "lower", "upper"))
}

#' Expected value of partial perfect information
#'
#' @param outputs As in `evpi`.
#' @param inputs A data frame of the parameters, row by row the draws behind the outputs.
#' @param pars A vector of names for one set, or a list of vectors for several; all parameters one
#'   by one where it is left out.
#' @param seed Seed of folds and posterior draws.
#' @return A data frame: pars, k, evppi, se, lower, upper, flags.
evppi <- function(outputs, inputs, pars = NULL, seed = 0) {
  inputs <- as.data.frame(inputs)
  sets <- if (is.null(pars)) list() else if (is.list(pars)) pars else list(pars)
  unknown <- setdiff(unlist(sets), names(inputs))
  if (length(unknown)) {
    nearest <- names(inputs)[which.min(adist(unknown[1], names(inputs), ignore.case = TRUE))]
    stop("pars: ", paste(unknown, collapse = ", "), " not among the columns of inputs. ",
         "Did you mean ", nearest, "?", call. = FALSE)
  }
  several <- Filter(function(set) length(set) > 1, sets)
  groups <- unlist(lapply(several, function(set) c("--pars", quoted(set))))
  found <- run_voi(outputs, inputs, groups, "--seed", as.character(seed))
  table <- rbind(found$singles, found$groups)
  labels <- if (is.null(pars)) intersect(names(inputs), found$singles$pars) else
    vapply(sets, paste, "", collapse = " + ")
  table <- table[table$pars %in% labels, ]
  at <- if (is.null(table$k)) rep(0, nrow(table)) else table$k
  table <- pick(table[order(match(table$pars, labels), at), ], c("pars", "k", "evppi", "se", "lower", "upper", "flags"))
  # R's voi writes the members of a set with commas.
  table$pars <- gsub(" + ", ",", table$pars, fixed = TRUE)
  table
}

#' Expected value of sample information
#'
#' @param outputs,inputs,seed As in `evppi`.
#' @param study "binary", "trial_binary", "normal", "normal_known", "count" or "survival".
#' @param pars The parameter of each arm.
#' @param n Participants in each arm, one or several.
#' @param sd Standard deviation of a normal outcome between people: a number or a parameter.
#' @param time Observation of each person, of a count; or follow-up, of survival.
#' @return A data frame: n, k, evsi, se, lower, upper, participants, flags.
evsi <- function(outputs, inputs, study = "binary", pars, n = 100, sd = NULL, time = NULL,
                 seed = 0) {
  kinds <- c(binary = "binary", trial_binary = "binary", normal = "normal",
             normal_known = "normal", count = "count", survival = "survival")
  if (!study %in% names(kinds)) {
    stop("study: expected one of ", paste(names(kinds), collapse = ", "), call. = FALSE)
  }
  kind <- kinds[[study]]
  detail <- if (kind == "normal") sd else if (kind == "binary") NULL else time
  if (kind == "normal" && is.null(sd)) stop("sd: needed for a normal outcome", call. = FALSE)
  if (kind == "survival" && is.null(time)) stop("time: needed for survival", call. = FALSE)
  design <- paste(c(kind, quoted(pars), as.character(detail)), collapse = ":")
  found <- run_voi(outputs, inputs, "--trial", design, "--sizes",
                   format(n, scientific = FALSE, trim = TRUE), "--seed", as.character(seed))
  pick(found$evsi, c("n", "k", "evsi", "se", "lower", "upper", "participants", "flags"))
}

#' Expected net benefit of sampling
#'
#' @param evsi What `evsi` returned.
#' @param costs_setup Fixed cost of the study.
#' @param costs_pp Cost for each participant.
#' @param pop People who face the decision in a year.
#' @param time Years for which the decision stays relevant.
#' @param dis Discount rate of a year; the first year is not discounted.
#' @param wait Years until the results of the study.
#' @return The data frame with enbs, enbs_lower, enbs_upper and enbsmax (the best size) added.
enbs <- function(evsi, costs_setup, costs_pp, pop, time, dis = 0.035, wait = 0) {
  years <- seq_len(ceiling(time)) - 1
  left <- pmax(pmin(years + 1, time) - pmax(years, wait), 0)
  people <- pop * sum(left / (1 + dis)^years)
  cost <- costs_setup + costs_pp * evsi$participants
  for (name in c("", "_lower", "_upper")) {
    value <- if (name == "") evsi$evsi else evsi[[sub("_", "", name)]]
    evsi[[paste0("enbs", name)]] <- value * people - cost
  }
  k <- if (is.null(evsi$k)) rep(1, nrow(evsi)) else evsi$k
  best <- stats::ave(evsi$enbs, k, FUN = max)
  evsi$enbsmax <- evsi$enbs == best & best > 0
  evsi
}
