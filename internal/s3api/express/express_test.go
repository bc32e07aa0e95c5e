// SPDX-License-Identifier: Apache-2.0

package express_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/s3api/express"
)

// The keys, dates and signatures of these examples are those of Amazon's documentation of signatures of version 4.
const (
	exampleAccess = "AKIAIOSFODNN7EXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	exampleDate   = "20130524T000000Z"
	emptySum      = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func codeOf(t *testing.T, err error) string {
	t.Helper()
	var r *express.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("%v is no refusal", err)
	}
	return r.Code
}

func requestOf(method, path, payload string, query [][2]string, headers map[string]string) *express.Request {
	return &express.Request{Method: method, Path: path, Query: query, Payload: payload,
		Values: func(name string) [][]byte { return [][]byte{[]byte(headers[name])} },
		Names: func(f func([]byte)) {
			for name := range headers {
				if strings.HasPrefix(name, "x-amz-") {
					f([]byte(strings.ToUpper(name)))
				}
			}
		}}
}

func exampleGet(t *testing.T) (*express.Signature, *express.Request) {
	t.Helper()
	s, err := express.ParseHeader("AWS4-HMAC-SHA256 Credential="+exampleAccess+"/20130524/us-east-1/s3/aws4_request,"+
		"SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"+
		"Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", exampleDate, "")
	if err != nil {
		t.Fatal(err)
	}
	return s, requestOf("GET", "/test.txt", emptySum, nil, map[string]string{"host": "examplebucket.s3.amazonaws.com",
		"range": "bytes=0-9", "x-amz-content-sha256": emptySum, "x-amz-date": exampleDate})
}

func TestTheSignatureOfAHeader(t *testing.T) {
	s, r := exampleGet(t)
	key := express.DeriveKey(exampleSecret, s.Day, s.Region, s.Service)
	if err := s.Verify(r, key); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*express.Signature, *express.Request){
		"another path":     func(_ *express.Signature, r *express.Request) { r.Path = "/other.txt" },
		"another method":   func(_ *express.Signature, r *express.Request) { r.Method = "PUT" },
		"another argument": func(_ *express.Signature, r *express.Request) { r.Query = [][2]string{{"acl", ""}} },
		"another payload":  func(_ *express.Signature, r *express.Request) { r.Payload = express.Unsigned },
		"another service":  func(s *express.Signature, _ *express.Request) { s.Service = express.Service },
		"another digit":    func(s *express.Signature, _ *express.Request) { s.Value = "0" + s.Value[1:] },
	} {
		s, r := exampleGet(t)
		change(s, r)
		if err := s.Verify(r, key); err == nil || codeOf(t, err) != "SignatureDoesNotMatch" {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, r = exampleGet(t)
	names := r.Names
	r.Names = func(f func([]byte)) { names(f); f([]byte("X-Amz-Copy-Source")) }
	if err := s.Verify(r, key); err == nil || codeOf(t, err) != "AccessDenied" {
		t.Errorf("a header that is not signed: %v", err)
	}
}

func TestTheSignatureOfAURL(t *testing.T) {
	args := map[string]string{"X-Amz-Algorithm": "AWS4-HMAC-SHA256",
		"X-Amz-Credential": exampleAccess + "/20130524/us-east-1/s3/aws4_request", "X-Amz-Date": exampleDate,
		"X-Amz-Expires": "86400", "X-Amz-SignedHeaders": "host",
		"X-Amz-Signature": "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"}
	s, err := express.ParseQuery(func(name string) string { return args[name] })
	if err != nil {
		t.Fatal(err)
	}
	var query [][2]string
	for k, v := range args {
		if k != "X-Amz-Signature" {
			query = append(query, [2]string{k, v})
		}
	}
	r := requestOf("GET", "/test.txt", express.Unsigned, query,
		map[string]string{"host": "examplebucket.s3.amazonaws.com"})
	if err := s.Verify(r, express.DeriveKey(exampleSecret, s.Day, s.Region, s.Service)); err != nil {
		t.Fatal(err)
	}
	begin, _ := time.Parse(express.DateFormat, exampleDate)
	for at, want := range map[time.Duration]string{-time.Hour: "AccessDenied", 0: "", 23 * time.Hour: "",
		25 * time.Hour: "AccessDenied"} {
		err := s.CheckTime(begin.Add(at))
		if (want == "") != (err == nil) || err != nil && codeOf(t, err) != want {
			t.Errorf("%v after the signature: %v, expected %q", at, err, want)
		}
	}
	args["X-Amz-Expires"] = "604801"
	if _, err := express.ParseQuery(func(name string) string { return args[name] }); err == nil {
		t.Error("a URL that is valid for more than a week was accepted")
	}
}

func TestTheClockOfAClient(t *testing.T) {
	s, _ := exampleGet(t)
	now, _ := time.Parse(express.DateFormat, exampleDate)
	for at, want := range map[time.Duration]string{0: "", 14 * time.Minute: "", -14 * time.Minute: "",
		16 * time.Minute: "RequestTimeTooSkewed", -16 * time.Minute: "RequestTimeTooSkewed"} {
		err := s.CheckTime(now.Add(at))
		if (want == "") != (err == nil) || err != nil && codeOf(t, err) != want {
			t.Errorf("a difference of %v: %v, expected %q", at, err, want)
		}
	}
}

func TestMalformedSignatures(t *testing.T) {
	good := "AWS4-HMAC-SHA256 Credential=a/20130524/us-east-1/s3express/aws4_request, SignedHeaders=host;x-amz-date, Signature=" +
		strings.Repeat("0", 64)
	if _, err := express.ParseHeader(good, exampleDate, ""); err != nil {
		t.Fatal(err)
	}
	if got := express.ServiceOf(good, ""); got != express.Service {
		t.Errorf("service %q", got)
	}
	for name, c := range map[string][3]string{
		"no algorithm":          {strings.TrimPrefix(good, "AWS4-HMAC-SHA256 "), exampleDate, ""},
		"no date":               {good, "", ""},
		"a date of another day": {good, "20130525T000000Z", ""},
		"a short credential":    {strings.Replace(good, "/s3express", "", 1), exampleDate, ""},
		"a short signature":     {good[:len(good)-1], exampleDate, ""},
		"no host":               {strings.Replace(good, "host;", "", 1), exampleDate, ""},
		"headers out of order":  {strings.Replace(good, "host;x-amz-date", "x-amz-date;host", 1), exampleDate, ""},
		"a field twice":         {good + ", Signature=" + strings.Repeat("0", 64), exampleDate, ""},
		"an unsigned token":     {good, exampleDate, "token"},
	} {
		if s, err := express.ParseHeader(c[0], c[1], c[2]); err == nil {
			t.Errorf("%s was accepted: %+v", name, s)
		}
	}
}

func TestSessions(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	clock := func() time.Time { return now }
	key := express.NewKey()
	k, err := express.NewKeeper(key, clock)
	if err != nil {
		t.Fatal(err)
	}
	s := &express.Session{Account: "me", Bucket: "b--z--x-s3", Created: 7, Mode: express.ReadOnly}
	if err := k.Begin(s, "secret-of-me", 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	again, err := express.NewKeeper(key, clock) // as after a restart
	if err != nil {
		t.Fatal(err)
	}
	for _, keeper := range []*express.Keeper{k, again} {
		got, err := keeper.Find(s.Token)
		if err != nil {
			t.Fatal(err)
		}
		if got.Account != "me" || got.Bucket != s.Bucket || got.Created != 7 || got.Mode != express.ReadOnly ||
			got.Access != s.Access || got.Secret != s.Secret {
			t.Errorf("found %+v, expected %+v", got, s)
		}
		for _, secret := range []string{"secret-of-me", "secret-of-me", "other", "secret-of-me"} {
			if got.Proves(keeper, secret) != (secret == "secret-of-me") {
				t.Errorf("the proof of the secret %q is wrong", secret)
			}
		}
	}
	other, err := express.NewKeeper(express.NewKey(), clock)
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func() error{
		"a token of another server": func() error { _, err := other.Find(s.Token); return err },
		"a changed token":           func() error { _, err := again.Find(s.Token[:len(s.Token)-2] + "AA"); return err },
		"no token of ours":          func() error { _, err := k.Find("x"); return err },
		"a very long token":         func() error { _, err := k.Find(strings.Repeat("A", 1<<20)); return err },
	} {
		if err := try(); err == nil || codeOf(t, err) != "InvalidToken" {
			t.Errorf("%s: %v", name, err)
		}
	}
	now = now.Add(5 * time.Minute)
	for _, keeper := range []*express.Keeper{k, again} {
		if _, err := keeper.Find(s.Token); err == nil || codeOf(t, err) != "ExpiredToken" {
			t.Errorf("a session that has ended: %v", err)
		}
	}
}

// exampleChunks is the payload of Amazon's example: 66560 letters in two chunks.
func exampleChunks() string {
	return "10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n" +
		strings.Repeat("a", 65536) + "\r\n" +
		"400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n" +
		strings.Repeat("a", 1024) + "\r\n" +
		"0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n"
}

func exampleReader(body, form, trailer string) *express.Chunks {
	s := &express.Signature{Day: "20130524", Region: "us-east-1", Service: "s3", Date: exampleDate,
		Value: "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"}
	return express.NewChunks(strings.NewReader(body), form, trailer, s,
		express.DeriveKey(exampleSecret, s.Day, s.Region, s.Service))
}

func TestSignedChunks(t *testing.T) {
	got, err := io.ReadAll(exampleReader(exampleChunks(), express.SignedChunks, ""))
	if err != nil || string(got) != strings.Repeat("a", 66560) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	for name, spoilt := range map[string]string{
		"another byte":      strings.Replace(exampleChunks(), "aaa", "aba", 1),
		"another signature": strings.Replace(exampleChunks(), "0055", "0056", 1),
		"no last chunk":     exampleChunks()[:strings.LastIndex(exampleChunks(), "0;chunk")],
		"no end":            exampleChunks()[:len(exampleChunks())-2],
		"bytes behind":      exampleChunks() + "x",
		"a negative size":   strings.Replace(exampleChunks(), "10000;", "-10000;", 1),
		"an endless line":   strings.Repeat("0", 1<<20),
		"no signature":      "5\r\nhello\r\n0\r\n\r\n",
	} {
		if _, err := io.ReadAll(exampleReader(spoilt, express.SignedChunks, "")); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestATrailerWithoutSignatures(t *testing.T) {
	const trailer = "x-amz-checksum-crc32"
	c := exampleReader("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", express.UnsignedTrailer, trailer)
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "hello" || c.Trailer() != "NhCmhg==" {
		t.Fatalf("%q, trailer %q, %v", got, c.Trailer(), err)
	}
	for name, body := range map[string]string{
		"no trailer":          "5\r\nhello\r\n0\r\n\r\n",
		"another trailer":     "5\r\nhello\r\n0\r\nx-amz-checksum-sha1:NhCmhg==\r\n\r\n",
		"three lines":         "0\r\nx-amz-checksum-crc32:a\r\nb:c\r\nd:e\r\n\r\n",
		"a chunk without end": "5\r\nhello0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n",
	} {
		if _, err := io.ReadAll(exampleReader(body, express.UnsignedTrailer, trailer)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func FuzzChunks(f *testing.F) {
	f.Add(exampleChunks(), "")
	f.Add("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", "x-amz-checksum-crc32")
	f.Fuzz(func(t *testing.T, body, trailer string) {
		for _, form := range []string{express.UnsignedTrailer, express.SignedChunks, express.SignedTrailer} {
			got, err := io.ReadAll(exampleReader(body, form, trailer))
			if err == nil && len(got) > len(body) {
				t.Errorf("%d bytes of content from %d", len(got), len(body))
			}
		}
	})
}

func FuzzParseHeader(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=a/20130524/us-east-1/s3express/aws4_request, SignedHeaders=host, Signature="+
		strings.Repeat("0", 64), exampleDate, "token")
	f.Fuzz(func(t *testing.T, authorization, date, token string) {
		s, err := express.ParseHeader(authorization, date, token)
		if err == nil && (s.Service == "" && express.ServiceOf(authorization, "") != "" || len(s.Value) != 64) {
			t.Errorf("parsed %+v", s)
		}
		_ = express.ServiceOf(authorization, token)
	})
}
