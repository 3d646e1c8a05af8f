"""From prompts to a drafter: the target answers, its hidden states are kept, a drafter learns from them, export."""
