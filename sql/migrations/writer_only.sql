-- purpose: after the baseline, for an outbox that something else reads: no subscription, so nobody is waited for

delete from {schema}.partition;
delete from {schema}.subscription;
