"""Long values that fill templates. A value belongs to one split by its place in its pool."""

from __future__ import annotations

from typing import Final


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


TOPICS: Final = _lines("""
    how tides work
    why leaves change colour in autumn
    how bread rises
    what a database index is
    how vaccines protect people
    why the sky is blue
    how a bicycle stays upright
    what inflation means
    how bees make honey
    the water cycle
    how a fridge keeps food cold
    what recursion is
    how earthquakes happen
    why we dream
    how solar panels work
    what a compiler does
    how rivers form valleys
    the difference between weather and climate
    how the human heart pumps blood
    what open source software is
    how photosynthesis works
    why the moon has phases
    how glass is made
    what a black hole is
    how the internet routes packets
    why ice floats
    how a piano makes sound
    what makes a good neighbour
    how to plan a small garden
    what a budget is good for
    how glaciers move
    why exercise is healthy
    how batteries store energy
    what version control is for
    how birds find their way
    why salt melts ice
    how a camera takes a picture
    what photons are
    how cheese is made
    the causes of the French Revolution
    how an electric motor turns
    what a hash table is
    how volcanoes erupt
    why people yawn
    how paper is recycled
    what machine learning is
    how a lock on a canal works
    the life cycle of a butterfly
    how wind turbines make power
    what a cache is in computing
    how muscles grow
    why metals conduct electricity
    how a thermometer works
    what supply and demand means
    how cats see in the dark
    why bridges have joints
    how soap removes grease
    what an algorithm is
    how rainbows form
    the history of the printing press
    how satellites stay in orbit
    why onions make you cry
    how spiders build webs
    what encryption does
    how coral reefs grow
    why seasons exist
    how a search engine works
    what a healthy breakfast is
    how trains change tracks
    the role of the United Nations
    how wool becomes yarn
    why the sea is salty
    how a vacuum flask works
    what a star is made of
    how sound travels under water
    the rules of chess for beginners
    how to read a map
    why some animals hibernate
    how plastic is produced
    what an operating system does
""")

PURPOSES: Final = _lines("""
    returns the largest number in a list
    counts how often each word appears in a text
    checks whether a string is a palindrome
    removes duplicates from a list and keeps the order
    computes the factorial of a number
    reverses the words of a sentence
    converts degrees Celsius to Fahrenheit
    merges two sorted lists
    finds all prime numbers up to a limit
    returns the n-th Fibonacci number
    splits a list into chunks of a given size
    flattens a nested list
    computes the average of a list of numbers
    checks whether two strings are anagrams
    reads a text file and returns its lines
    groups people by their city
    finds the first repeated element
    formats a number of seconds as hours and minutes
    computes the greatest common divisor
    returns the median of a list
    counts the vowels in a string
    rotates a list by k places
    transposes a matrix
    validates an email address
    implements binary search
    sums the digits of a number
    finds the longest word in a sentence
    computes compound interest
    converts a number to binary
    checks whether brackets are balanced
    sorts dictionaries by a key
    returns the common elements of two lists
    computes the distance between two points
    replaces several spaces with one
    finds the index of the smallest element
    turns a list of pairs into a dictionary
    checks whether a year is a leap year
    capitalises each word of a title
    computes the running total of a list
    removes all punctuation from a text
    parses a line of comma separated values
    returns the most common element of a list
    multiplies two matrices
    finds the second largest number
    builds a frequency table of letters
    converts Roman numerals to numbers
    generates a multiplication table
    filters out negative numbers
    computes the standard deviation
    compares two version numbers
    finds missing numbers in a range
    encodes a text with the Caesar cipher
    returns the last n lines of a file
    checks whether a number is a perfect square
    zips two lists into a dictionary
    shuffles a list with a seed
    counts the words in each line
    finds pairs of numbers with a given sum
    truncates a text at a word boundary
    computes the area of a polygon
""")

SITUATIONS: Final = _lines("""
    a birthday party for ten children
    a weekend trip by train
    moving to a smaller flat
    a job interview at a bank
    learning to swim as an adult
    a picnic in the rain
    a first day at a new school
    cooking for a large family
    a lost suitcase at the airport
    a quiet evening without screens
    starting a book club
    a long bus ride
    repairing an old chair
    growing tomatoes on a balcony
    a meeting with difficult news
    a walk through a foreign town
    adopting an older dog
    studying for an exam
    hosting a guest from abroad
    saving money for a holiday
    a power cut in winter
    training for a ten kilometre run
    a visit to the dentist
    selling a used car
    writing a letter to a friend
    cleaning a cellar
    organising a street festival
    a camping trip with teenagers
    a school play
    learning to play the violin
    a broken washing machine
    a wedding in a small village
    working from home
    a night at the opera
    looking after twins
    a garden full of snails
    a late train connection
    choosing a first bicycle
    a museum visit with children
    planning a vegetable bed
""")
