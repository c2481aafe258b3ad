"""Trains PPO of Stable-Baselines3 to inline: python3 examples/stable_baselines3_ppo.py --data_path=CORPUS."""

import argparse
from pathlib import Path

from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor

from compiler_opt.env import compiler_env

VOCABULARY = Path(__file__).parents[1] / "compiler_opt/rl/inlining/vocab"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_path", required=True)
    parser.add_argument("--clang_path")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    env = Monitor(compiler_env(arguments.data_path, clang_path=arguments.clang_path, vocab_path=VOCABULARY))
    # No discount: the only reward of an episode is its last.
    model = PPO("MlpPolicy", env, n_steps=128, batch_size=64, gamma=1.0, seed=arguments.seed, device="cpu")
    model.learn(arguments.steps)
    rewards = env.get_episode_rewards()
    tenth = max(len(rewards) // 10, 1)
    first, last = (sum(some) / tenth for some in (rewards[:tenth], rewards[-tenth:]))
    print(f"{len(rewards)} episodes: mean reward of the first tenth {first:+.4f}, of the last {last:+.4f}")
    env.close()


if __name__ == "__main__":
    main()
