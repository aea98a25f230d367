"""A decision in three stages

Test, then treat, then see the outcome. A score predicts the response to a treatment, and the
response predicts the outcome. Treatment may be stopped, continued or extended once the response is
known, and need not be begun if the score is poor. The worth of this plan is an expectation in an
expectation in an expectation.
"""

# %%
# Each level has a law, given all earlier values. g returns the net benefit of each of three
# actions: stop, continue, extend.
import matplotlib.pyplot as plt
import numpy as np

import nestquad as nq


def benefits(outcome, score, response):
    gain = outcome[..., 0]
    extended = gain + 0.9 / (1.0 + np.exp(2.0 * response[..., 0]))  # helps poor responders
    return np.stack(np.broadcast_arrays(0.0, gain - 0.2, extended - 0.45), axis=-1)


laws = [
    nq.Normal(),  # score of the test
    lambda score: nq.Normal(0.6 * score, 0.8),  # response to treatment
    lambda score, response: nq.Normal(0.2 * score + 0.7 * response, 1.0),  # outcome
]
problem = nq.RepeatedExpectation(
    laws=laws,
    g=benefits,
    f=[
        lambda j: np.maximum(j - 0.3, 0.0),  # begin treatment if it is worth its cost
        lambda j: j.max(axis=-1),  # the best action, given score and response
    ],
    name="test, treat, outcome",
)
problem

# %%
est = nq.estimate(problem, budget=4_000, rng=0)
est

# %%
# Level by level: worth of each action by response, in closed form at a score of 0, and worth of
# beginning treatment by score, as estimated.
response = np.linspace(-2.5, 2.5, 200)
figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 3.8), layout="constrained")
mean = 0.7 * response
help_of = 0.9 / (1.0 + np.exp(2.0 * response))
for name, worth in (
    ("stop", 0.0 * response),
    ("continue", mean - 0.2),
    ("extend", mean + help_of - 0.45),
):
    left.plot(response, worth, label=name)
best = np.max([0.0 * response, mean - 0.2, mean + help_of - 0.45], axis=0)
left.plot(response, best, color="black", linestyle=":", label="best")
left.set(xlabel="response to treatment", ylabel="net benefit, average over outcomes")
left.set_title("Then treat: score 0", loc="left")
left.legend(frameon=False)
order = np.argsort(est.sample.theta[:, 0])
score, worth = est.sample.theta[order, 0], est.sample.j[order] - 0.3
kept = np.abs(score) < 2.5
right.plot(score[kept], worth[kept], label="begin treatment")
right.axhline(0.0, color="tab:gray", label="leave it")
right.fill_between(score[kept], 0.0, np.maximum(worth[kept], 0.0), alpha=0.2)
right.set(xlabel="score of the test", ylabel="net benefit, average over responses")
right.set_title(f"First test: the plan is worth {est.summary}", loc="left")
right.legend(frameon=False)
plt.show()

# %%
# Nested loops of independent draws with a hundred times as many evaluations.
print(nq.estimate(problem, budget=400_000, method="nmc", rng=0))
