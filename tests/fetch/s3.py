"""A bucket on loopback that checks every signature, by AWS's description of Signature Version 4."""

import hashlib
import hmac
import re
import urllib.parse

from hub import Site

EMPTY = hashlib.sha256(b"").hexdigest()


def quoted(text, slashes=False):
    return urllib.parse.quote(text, safe="/-_.~" if slashes else "-_.~")


class Bucket(Site):
    """`keys`: {access key: secret}; None lets anyone in. Lists `page` objects at a time."""

    def __init__(self, files, bucket="models", keys=None, page=3):
        super().__init__(files)
        self.bucket = bucket
        self.keys = keys
        self.page = page

    def wrong_with(self, request):
        """Why a request is not let in; None where it is."""
        if self.keys is None:
            return None
        given = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?"
            r"Signature=([0-9a-f]{64})",
            request.headers.get("Authorization", ""),
        )
        if not given:
            return "AccessDenied"
        access, day, region, names, signature = given.groups()
        if access not in self.keys:
            return "InvalidAccessKeyId"
        date = request.headers["x-amz-date"]
        if not date.startswith(day) or request.headers["x-amz-content-sha256"] != EMPTY:
            return "AccessDenied"
        path, _, query = request.path.partition("?")
        pairs = sorted((quoted(k), quoted(v)) for k, v in urllib.parse.parse_qsl(query, keep_blank_values=True))
        headers = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in names.split(";"))
        canonical = "\n".join(
            ["GET", quoted(urllib.parse.unquote(path), True), "&".join(f"{k}={v}" for k, v in pairs), headers, names, EMPTY]
        )
        to_sign = "\n".join(
            [
                "AWS4-HMAC-SHA256",
                date,
                f"{day}/{region}/s3/aws4_request",
                hashlib.sha256(canonical.encode()).hexdigest(),
            ]
        )
        key = b"AWS4" + self.keys[access].encode()
        for part in (day, region, "s3", "aws4_request", to_sign):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return None if key.hex() == signature else "SignatureDoesNotMatch"

    def answer(self, request):
        if wrong := self.wrong_with(request):
            return request.say(403, f"<Error><Code>{wrong}</Code></Error>".encode())
        path, _, query = request.path.partition("?")
        fields = dict(urllib.parse.parse_qsl(query))
        name = urllib.parse.unquote(path).removeprefix(f"/{self.bucket}").lstrip("/")
        if not name and fields.get("list-type") == "2":
            return self.list(request, fields)
        if name not in self.files:
            return request.say(404, b"<Error><Code>NoSuchKey</Code></Error>")
        return request.say_file(self.files[name], self.etag(name))

    def list(self, request, fields):
        names = sorted(name for name in self.files if name.startswith(fields.get("prefix", "")))
        names = [name for name in names if name > fields.get("continuation-token", "")]
        shown = names[: self.page]
        rows = "".join(
            f"<Contents><Key>{name}</Key><Size>{len(self.files[name])}</Size>"
            f"<ETag>{self.etag(name).replace(chr(34), '&quot;')}</ETag></Contents>"
            for name in shown
        )
        more = len(names) > len(shown)
        token = f"<NextContinuationToken>{shown[-1]}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        request.say(200, text.encode())
