"""What the pages say: their code runs, their questions are answered, their figures are measured."""
