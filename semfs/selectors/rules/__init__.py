"""Rules of a panel as users state them: from parameters to `Panel`, and to sentences.

Which features may be selected at all is the matter of `Candidates`; here are the rules that
concern the panel as a whole: groups, markers per class, a budget, the signal of each class.
"""
