"""Parts that commands share: options, targets, output, confirmation, signals."""
