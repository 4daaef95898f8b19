"""Values that fill templates. A value belongs to one split by its place in its pool."""

from __future__ import annotations

from typing import Final


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CITIES: Final = _words("""
    Oslo Vienna Madrid Nairobi Toronto Osaka Lima Dublin Zagreb Accra
    Prague Munich Seville Mombasa Calgary Kyoto Quito Cork Split Kumasi
    Warsaw Hamburg Bilbao Kampala Ottawa Sapporo Bogota Galway Ljubljana Lagos
    Krakow Bremen Valencia Kigali Halifax Nagoya Santiago Limerick Skopje Dakar
    Gdansk Leipzig Malaga Lusaka Winnipeg Sendai Cusco Belfast Sofia Tunis
    Athens Dresden Granada Harare Regina Fukuoka Medellin Glasgow Varna Rabat
""")

NAMES: Final = _words("""
    Anna Bruno Clara Dmitri Elif Farid Greta Hassan Irene Jonas
    Katya Liam Maya Nikhil Olga Pedro Quinn Rosa Samir Tara
    Umar Vera Walter Xenia Yusuf Zoe Amara Bela Carmen Diego
    Esther Felix Gloria Hugo Ingrid Jamal Kira Lorenzo Mina Noah
    Odette Pavel Rhea Stefan Thandi Ulla Viktor Wanda Yara Zane
    Aisha Boris Celia Darius Edith Fiona Goran Helena Igor Juno
""")

PRODUCTS: Final = _lines("""
    wool blanket
    steel kettle
    oak table
    garden hose
    road bike
    tea set
    wall clock
    rain jacket
    camping stove
    paper lantern
    water bottle
    bread knife
    leather belt
    guitar strap
    desk fan
    bath towel
    picture frame
    phone stand
    flower pot
    chess board
    travel pillow
    sun hat
    tool box
    coffee grinder
    bird feeder
    tennis racket
    rice cooker
    door mat
    hand drill
    reading light
    beach umbrella
    running shoes
    cutting board
    candle holder
    laptop bag
    kite
    snow shovel
    piano bench
    spice rack
    ladder
    soap dish
    sleeping bag
    pencil case
    frying pan
    window blind
    dog leash
    ski goggles
    alarm clock
    cake tin
    wine glass
    fishing rod
    shoe rack
    heat lamp
    jigsaw puzzle
    garden rake
    hair dryer
    step stool
    wooden spoon
    bicycle pump
    baby monitor
""")

SUBJECTS: Final = _words("""
    invoice ticket booking student recipe sensor vehicle patient message project
    account payment review shipment employee lesson camera flight article device
    customer contract rental photo member parcel battery voucher comment schedule
    teacher playlist session address license receipt folder branch station budget
    channel auction garden policy concert tournament warehouse printer survey tenant
    library museum podcast robot meeting training festival harvest workshop painting
""")

FIELDS: Final = _words("""
    id title status owner created price amount active tally label
    city country rating level email phone weight height color size
    priority category version start_date end_date total currency language source score
    quantity region code due_date is_paid discount mode capacity duration notes
    width speed temperature distance age role department year genre location
    layout num_pages balance limit rank unit origin brand model shift
""")

VERBS: Final = _words("""
    parse load find merge filter count update remove build check
    sort split join convert validate format fetch store print search
    group rename copy trim encode decode compare insert append reverse
    postpone cancel archive publish measure sample collect export import normalise
    select replace read write open close create delete resolve match
""")

NOUNS: Final = _words("""
    numbers words lines rows users orders files records prices scores
    dates names values tags events points items tokens paths keys
    messages pairs groups options limits totals matches entries letters pages
    blocks nodes edges labels colors columns states steps weights ranges
    reports routes tables chunks fields tasks jobs bytes codes areas
""")

ANIMALS: Final = _words("""
    fox owl otter hedgehog sparrow dolphin badger turtle heron squirrel
    goat raven mouse swan beetle horse lynx toad seal magpie
    wolf rabbit crane spider donkey whale robin lizard moose bat
""")

ADJECTIVES: Final = _words("""
    curious eager lonely clever tired brave shy grumpy cheerful proud
    careful hungry gentle stubborn quiet lucky honest sleepy restless kind
    bold clumsy wise nervous polite playful lazy loyal silly calm
""")

SERVICES: Final = _words("""
    billing-api image-resizer search-worker login-gateway mail-sender report-builder feed-reader
    stock-sync photo-store map-tiles chat-relay audit-log price-watch form-server queue-drain
    news-crawler video-encoder tax-service backup-agent cart-service quiz-app wiki-front
    metrics-sink event-bridge user-import pdf-maker rate-limiter geo-lookup sms-relay theme-cdn
    job-runner key-vault voice-gate file-index data-cleaner bill-printer route-planner slot-finder
    trace-viewer token-mint asset-proxy
""")
