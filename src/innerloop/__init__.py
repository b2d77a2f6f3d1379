"""innerloop: a laboratory for in-context learning.

corpora     sentence pairs from files and packages
tasks       distributions over prompts
algorithms  learners with nothing trained
models      learners with trained weights
compiled    learners whose weights a proof wrote
theory      closed forms and exact expectations
training    objectives, the training loop, L-BFGS
analysis    measuring and comparing learners, and which algorithm is inside
experiments names, and trainings on disk
papers      every theorem and figure, with a measured verdict
"""

TYPE_CHECKING = False  # as in typing, which takes long to import
if TYPE_CHECKING:
    from innerloop.prompt import Prompt
    from innerloop.sentences import SentencePairs
    from innerloop.sequence import TokenSequence
else:

    def __getattr__(name):
        """Imports a public name when it is first used: the command line starts without torch."""
        if name == "Prompt":
            from innerloop.prompt import Prompt

            return Prompt
        if name == "TokenSequence":
            from innerloop.sequence import TokenSequence

            return TokenSequence
        if name == "SentencePairs":
            from innerloop.sentences import SentencePairs

            return SentencePairs
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return __all__


__all__ = ["Prompt", "SentencePairs", "TokenSequence"]
