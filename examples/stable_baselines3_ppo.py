"""Trains PPO of Stable-Baselines3 to inline: python3 examples/stable_baselines3_ppo.py --data_path=CORPUS."""

import argparse
from pathlib import Path

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor

from compiler_opt.env import compiler_env

VOCABULARY = Path(__file__).parents[1] / "compiler_opt/rl/inlining/vocab"


def episode_reward(env: gymnasium.Env, model: PPO) -> float:
    """The reward of one episode under the greedy policy."""
    observation, _ = env.reset(seed=0)
    total, done = 0.0, False
    while not done:
        action, _ = model.predict(observation, deterministic=True)
        observation, reward, terminated, truncated, _ = env.step(int(action))
        total, done = total + float(reward), terminated or truncated
    return total


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
    before = episode_reward(env, model)
    model.learn(arguments.steps)
    print(f"reward before {before:+.4f}, after {arguments.steps} steps {episode_reward(env, model):+.4f}")
    env.close()


if __name__ == "__main__":
    main()
