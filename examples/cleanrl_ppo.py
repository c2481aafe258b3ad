"""PPO in one file, in the style of CleanRL: python3 examples/cleanrl_ppo.py --data_path=CORPUS.

An iteration collects whole episodes, and takes each decision's own reward from the end of its episode.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from compiler_opt.env import CompilerEnv, EnvSettings, compiler_env

VOCABULARY = Path(__file__).parents[1] / "compiler_opt/rl/inlining/vocab"


def collect(env: CompilerEnv, policy: nn.Module, steps: int) -> tuple[torch.Tensor, ...]:
    """At least `steps` steps [T]: observations, actions, log probabilities, advantages; and the mean reward."""
    observations, actions, log_probs, rewards, totals = [], [], [], [], []
    while len(actions) < steps:
        observation, _ = env.reset()
        done = False
        while not done:
            state = torch.as_tensor(observation)
            with torch.no_grad():
                distribution = Categorical(logits=policy(state))
            action = distribution.sample()
            observations.append(state)
            actions.append(action)
            log_probs.append(distribution.log_prob(action))
            observation, reward, terminated, truncated, info = env.step(int(action))
            done = terminated or truncated
        rewards.append(info.get("decision_rewards", np.zeros(info["num_decisions"])))
        totals.append(reward)
    advantages = torch.as_tensor(np.concatenate(rewards), dtype=torch.float32)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    return (
        torch.stack(observations),
        torch.stack(actions),
        torch.stack(log_probs),
        advantages,
        torch.tensor(totals).mean(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_path", required=True)
    parser.add_argument("--clang_path")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    settings = EnvSettings(decision_rewards=True)
    env = compiler_env(arguments.data_path, clang_path=arguments.clang_path, vocab_path=VOCABULARY, settings=settings)
    env.reset(seed=arguments.seed)
    policy = nn.Sequential(nn.Linear(env.observation_space.shape[0], 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    done = 0
    while done < arguments.steps:
        observations, actions, old_log_probs, advantages, mean_reward = collect(env, policy, 256)
        for _ in range(4):
            distribution = Categorical(logits=policy(observations))
            ratio = (distribution.log_prob(actions) - old_log_probs).exp()
            clipped = ratio.clamp(0.8, 1.2)
            loss = (
                -torch.minimum(ratio * advantages, clipped * advantages).mean() - 0.01 * distribution.entropy().mean()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        done += len(actions)
        print(f"{done} steps: mean reward {mean_reward:+.4f}", flush=True)
    env.close()


if __name__ == "__main__":
    main()
