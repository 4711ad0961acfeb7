"""Every kind of broker that there is on this machine."""

import os

from broker_hook import Hook
from broker_nats import Nats
from broker_rabbit import Rabbit
from broker_redis import Redis
from broker_sqs import Sqs
from brokers import Broker
from kafkas import BOOTSTRAP, ApacheKafka, ForeignKafka, KafkaCluster, MockKafka

BROKERS: dict[str, type[Broker]] = {
    "kafka": ForeignKafka if BOOTSTRAP in os.environ else MockKafka,
    "rabbitmq": Rabbit,
    "nats": Nats,
    "redis": Redis,
    "webhook": Hook,
    "sqs": Sqs,
    "apache-kafka": ApacheKafka,
    "kafka-cluster": KafkaCluster,
}
SOAK = frozenset({"apache-kafka"})
"""Brokers that run the contract with --soak only."""
SPECIAL = frozenset({"kafka-cluster"})
"""Brokers that do not run the contract: they have tests of their own."""
