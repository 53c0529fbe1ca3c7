"""Private data is masked; similar text that is not private stays."""

import pytest

from preprocessing.text import mask_pii
from preprocessing.text.pii import EMAIL, IP, PHONE

ALL = ("email", "ip", "phone")


@pytest.mark.parametrize(
    "text",
    [
        "jo@mail.org",
        "jo.doe+list@mail.example-host.co.uk",
        "jo_99%x@x.io",
        "\u0438\u0432\u0430\u043d@\u043f\u043e\u0449\u0430.\u0431\u0433",
    ],
)
def test_an_email_address_is_masked(text: str) -> None:
    assert mask_pii(f"<{text}>, she said", ("email",)) == (f"<{EMAIL}>, she said", 1)


@pytest.mark.parametrize("text", ["@jo", "jo@", "a @ b.com", "jo@localhost", "3@4.5", "x" * 65 + "@mail.org"])
def test_text_that_is_no_email_address_stays(text: str) -> None:
    assert mask_pii(text, ("email",)) == (text, 0)


@pytest.mark.parametrize("text", ["8.8.8.8", "141.30.2.255", "1.2.3.4"])
def test_a_global_ip_address_is_masked(text: str) -> None:
    assert mask_pii(f"at {text}. Or {text}:80", ("ip",)) == (f"at {IP}. Or {IP}:80", 2)


@pytest.mark.parametrize(
    "text",
    [
        "192.168.0.1",
        "127.0.0.1",
        "10.1.2.3",
        "100.64.0.1",
        "256.1.1.1",
        "1.2.3",
        "1.2.3.4.5",
        "01.02.2003.4",
        "v1.2.3.4",
        "version 1.2.3.4",
        "Firmware 1.2.3.4",
        "1.2.3.400",
    ],
)
def test_private_ip_addresses_and_versions_stay(text: str) -> None:
    assert mask_pii(f"at {text} now", ("ip",)) == (f"at {text} now", 0)


@pytest.mark.parametrize(
    "text",
    [
        "+44 20 7946 0958",
        "+49 (30) 901820",
        "+359 2 940 9999",
        "(415) 392-7711",
        "415-392-7711",
        "415.392.7711",
        "1-415-392-7711",
    ],
)
def test_a_telephone_number_is_masked(text: str) -> None:
    assert mask_pii(f"Call {text}, please", ("phone",)) == (f"Call {PHONE}, please", 1)


@pytest.mark.parametrize("before", ["Tel.: ", "Tel. ", "Telephone: ", "fax no. ", "Phone number: ", "Mobile:"])
def test_digits_after_a_telephone_word_are_masked_in_any_form(before: str) -> None:
    assert mask_pii(f"{before}030 1234567.", ("phone",)) == (f"{before}{PHONE}.", 1)


@pytest.mark.parametrize(
    "text",
    [
        "from 1914-1918 and 1939-1945",
        "ISBN 0-306-40615-2",
        "+5 points, 3 + 4 = 7",
        "3.14159265358979",
        "1,234,567,890",
        "999-999-9999",
        "2001-10-12 10:20:30",
        "Hotel: 1999 to 2004",
        "Tel.: 12 34 56",
        "call 1234567",
    ],
)
def test_other_numbers_stay(text: str) -> None:
    assert mask_pii(text, ("phone",)) == (text, 0)


def test_text_after_a_number_stays() -> None:
    assert mask_pii("+44 20 7946 0958 (2004)", ("phone",)) == (f"{PHONE} (2004)", 1)


def test_only_the_requested_kinds_are_masked() -> None:
    text = "jo@mail.org 8.8.8.8 (415) 392-7711"
    assert mask_pii(text, ()) == (text, 0)
    assert mask_pii(text, ("ip",)) == (f"jo@mail.org {IP} (415) 392-7711", 1)


def test_masking_is_idempotent() -> None:
    once, count = mask_pii("jo@mail.org, 8.8.8.8, (415) 392-7711, Tel.: 030 1234567", ALL)
    assert count == 4
    assert mask_pii(once, ALL) == (once, 0)


@pytest.mark.parametrize(
    "text", ["a" * 200_000 + "@", "1." * 100_000, "+1 " * 70_000, "9-" * 100_000, "a@" + "b." * 90_000]
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    assert mask_pii(text, ALL)[1] == 0  # a superlinear pattern would time out
