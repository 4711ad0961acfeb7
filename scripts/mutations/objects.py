"""What objects of an application do to the threads of a worker when they are asked the simplest questions."""

from mutations.mutation import Mutation

OBJECTS = "tests/hostile/test_hostile_objects.py"
EXTENSIONS = "tests/hostile/test_hostile_extensions.py"

MUTATIONS = (
    Mutation(
        "judged unguarded",
        "what a handler returned or raised may answer any question with an error: a thread of the worker ended of it",
        "partbox/worker/runners/endpoint.py",
        "verdict = ask(text)\n        except BaseException as wrong:",
        "verdict = ask(text)\n        except ZeroDivisionError as wrong:",
        (f"{OBJECTS}::test_an_exception_whose_attributes_misbehave_is_handled_like_any_other",),
    ),
    Mutation(
        "an observer may exit",
        "an observer that raises SystemExit ends the thread that tells it: poller, saver or runner",
        "partbox/observe/observers.py",
        "hook(*arguments)\n            except BaseException as error:",
        "hook(*arguments)\n            except Exception as error:",
        (f"{EXTENSIONS}::test_observers_may_raise_anything",),
    ),
    Mutation(
        "a list of outcomes is believed",
        "a list of the application's own may not let itself be read: the runner ended of it",
        "partbox/worker/runners/batches.py",
        "except BaseException as wrong:",
        "except ZeroDivisionError as wrong:",
        (f"{OBJECTS}::test_a_batch_handler_may_return_anything_as_its_list_of_outcomes",),
    ),
)
