"""Building blocks of the conversational prompts: topics, people, places, passages. All written for this package."""

from __future__ import annotations

SCIENCE = tuple(
    """photosynthesis;the water cycle;plate tectonics;how vaccines work;the seasons of the year;black holes;friction
magnetism;electric current;DNA and genes;evolution by natural selection;the food chain;how batteries store energy
acids and bases;sound waves;the greenhouse effect;tides;how the heart pumps blood;the immune system;gravity
how rainbows form;volcanoes;earthquakes;the phases of the moon;nuclear fusion in the sun;how bees make honey
cell division;the periodic table;the speed of light;osmosis;how planes stay in the air;lenses and mirrors
chemical reactions;how bread rises;hibernation;the nervous system;coral reefs;recycling of plastics;radio waves
how muscles grow;entropy;the carbon cycle;bacteria and viruses;the ozone layer;superconductors;machine learning
neural networks;how a refrigerator works;satellites;wind turbines;the Doppler effect;antibiotics;stem cells
relativity;probability;the scientific method;how memory works;digestion;glaciers;fossils;comets;buoyancy""".replace(
        "\n", ";"
    ).split(";")
)

SOCIETY = tuple(
    """inflation;supply and demand;how elections work;the industrial revolution;the Roman empire;the Renaissance
the silk road;human rights;taxes;the printing press;democracy;the cold war;globalization;unemployment;budgeting
the French revolution;ancient Egypt;the history of chess;trade unions;stock markets;urban planning;the Olympics
colonialism;philosophy of Plato;existentialism;utilitarianism;social media;public libraries;immigration;the law
copyright;interest rates;insurance;the Great Depression;women's suffrage;the history of tea;myths and legends
the Enlightenment;cultural heritage;language change;journalism;advertising;the United Nations;ethics of AI
privacy on the internet;remote work;public transport;renewable energy policy;education systems;volunteering""".replace(
        "\n", ";"
    ).split(";")
)

THINGS = tuple(
    """a weekend trip;learning the guitar;a vegetable garden;a birthday party;a job interview;a small budget
better sleep;a healthy breakfast;a first marathon;a school project;moving to a new city;a book club;a camping trip
saving money;a home office;time management;a dinner for six guests;a science fair;public speaking;a road trip
learning a new language;keeping houseplants alive;training a puppy;a rainy afternoon;an exam week;a family reunion
a charity event;a bicycle tour;a podcast;a photo album;a picnic;a garage sale;a long flight;a morning routine
a team meeting;a blog;a winter hike;a surprise visit;a swimming lesson;a music festival;a small balcony
a first aid kit;a study group;an online course;a movie night;stress at work;a thank-you card
a wedding speech""".replace("\n", ";").split(";")
)

CHARACTERS = tuple(
    """a lighthouse keeper;a retired detective;a young inventor;a lost robot;a talking cat;a brave gardener
an old sailor;a shy musician;a curious fox;a clockmaker;a night-shift nurse;a mountain guide;a forgetful wizard
a baker who cannot taste;a librarian;a street painter;twin sisters;a pilot;a beekeeper;a time traveller
a small dragon;a chess champion;a train conductor;a glassblower;a postman;a ghost who is afraid of the dark""".replace(
        "\n", ";"
    ).split(";")
)

PLACES = tuple(
    """a quiet harbour town;a space station;a snowed-in village;a desert market;an old castle;a crowded train
an island without clocks;a city under water;a mountain hut;an empty theatre;a forest at night;a greenhouse
a museum after closing;a flooded valley;a rooftop garden;a railway station;a university library;a lighthouse""".replace(
        "\n", ";"
    ).split(";")
)

NAMES = [
    "Mara",
    "Jonas",
    "Priya",
    "Tomas",
    "Elif",
    "Kwame",
    "Sofia",
    "Daniel",
    "Yuki",
    "Hassan",
    "Lena",
    "Oscar",
    "Amara",
    "Felix",
    "Nadia",
    "Pavel",
    "Ruth",
    "Diego",
]

TOWNS = [
    "Brookfield",
    "Lindau",
    "Marlow",
    "Tessera",
    "Norwick",
    "Alder",
    "Pinehurst",
    "Soria",
    "Eastvale",
    "Carrow",
    "Bellmont",
    "Rivas",
    "Holt",
    "Vardo",
]

EVENTS = (
    "a new bridge was opened after three years of work", "the town library will stay open until midnight",
    "a storm damaged the roof of the old market hall", "students collected two tons of paper for recycling",
    "the local football club won the regional cup", "a bakery fire was put out within an hour",
    "the council voted to close the main street to cars", "a rare owl was seen in the city park",
    "the hospital received a new scanner paid for by donations", "a museum found a lost painting in its cellar",
    "the ferry service was stopped because of low water", "farmers protested against higher water prices",
    "a ten-year-old girl won the national spelling contest", "engineers tested a train that runs on hydrogen",
    "volunteers planted four thousand trees along the river", "the school canteen switched to local food",
)  # fmt: skip

DETAILS = (
    "Officials said that the cost was lower than expected.", "Residents had asked for this for many years.",
    "The mayor thanked everyone who had helped.", "Nobody was hurt, but traffic was slow all morning.",
    "A second phase of the project is planned for next spring.", "Some shop owners worry about losing customers.",
    "The decision was taken by nine votes to four.", "Experts will publish a full report in the autumn.",
    "Children from three schools took part.", "The weather had delayed the work several times.",
    "More than two hundred people came to watch.", "A spokesperson declined to give further figures.",
    "The money comes from a fund for rural areas.", "Neighbouring towns are now thinking of doing the same.",
    "Several volunteers worked through the night.", "It is the first time this has happened since 1987.",
)  # fmt: skip

FACTS = (
    "The capital of the region is {town}, which has about {n} thousand inhabitants.",
    "{name} founded the workshop in 19{y} with only two employees.",
    "The river is {n} kilometres long and flows through {town}.",
    "The festival takes place every {m} and lasts {d} days.",
    "In 19{y} the old mill was turned into a school.",
    "{name} wrote {d} books about the history of {town}.",
    "The bridge was built in 18{y} and repaired after the flood of 19{y}.",
    "Most people in {town} work in fishing, tourism or the paper industry.",
    "The tower is {n} metres high and can be visited from {m} to October.",
    "The museum keeps more than {n} hundred clocks, most of them given by {name}.",
)  # fmt: skip

GERMAN = (
    "Der Zug nach {town} fährt heute {d} Minuten später ab.", "{name} hat gestern ein altes Buch gefunden.",
    "Die Stadt will bis 20{y} mehr Bäume pflanzen.", "Das Wetter bleibt am Wochenende kühl und regnerisch.",
    "{name} arbeitet seit {d} Jahren in einem Krankenhaus in {town}.", "Die Preise für Brot sind leicht gestiegen.",
    "Viele Schüler lernen lieber am Nachmittag.", "Der Bürgermeister von {town} lehnt den neuen Plan ab.",
    "Im Museum gibt es eine Ausstellung über alte Uhren.", "Nach dem Spiel feierten die Fans die ganze Nacht.",
    "Die Polizei sucht Zeugen eines Unfalls bei {town}.", "Am {d}. {m} beginnt das große Fest am See.",
    "Forscher haben eine neue Art von Käfern entdeckt.", "{name} möchte im Sommer mit dem Fahrrad nach {town} fahren.",
)  # fmt: skip

ROUGH = (
    "hey i cant come tmrw, can we do it next week instead?", "the meeting was bad and nobody said anything useful",
    "your invoice is wrong again please fix", "we was very happy with the hotel but the food was not so good",
    "send me the file now, i am waiting since monday", "its too loud in the office and i cant work",
    "the product broke after two days, i want my money back", "thanks for the gift it was nice",
    "i think the plan is not good because it costs too much and takes too long",
    "she dont like the colour so we must paint it again", "i am writing because of the flat, is it still free?",
    "our team finished late because the parts came late and two people were sick",
)  # fmt: skip

SHORT_QUESTIONS = (
    "What is the boiling point of {x}?", "Who invented the {x}?", "When was the {x} invented?",
    "What is the {x} used for?", "How long does a {x} usually last?", "Why is the {x} important?",
    "Where does the word {x} come from?", "How does a {x} work?", "What are the parts of a {x}?",
    "How much does a {x} weigh?", "Which country produces the most {x}?", "How do you clean a {x}?",
)  # fmt: skip

OBJECTS = [
    "telescope",
    "bicycle",
    "compass",
    "piano",
    "thermometer",
    "umbrella",
    "microscope",
    "zipper",
    "helicopter",
    "camera",
    "typewriter",
    "candle",
    "wheel",
    "clock",
    "violin",
    "submarine",
    "radio",
    "paper",
    "glass",
    "steel",
    "coffee",
    "cotton",
    "rubber",
    "salt",
    "mercury",
    "lighthouse",
    "sewing-machine",
    "elevator",
    "parachute",
    "calculator",
    "battery",
    "refrigerator",
    "telephone",
    "windmill",
    "barometer",
    "saxophone",
    "pencil",
    "magnet",
    "soap",
]

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
