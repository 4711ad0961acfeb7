"""The parts that commands share: options, the outbox that they name, output, questions, signals."""
