// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// replies makes a server that answers each request with the text of reply, and records what it was sent.
func replies(t *testing.T, reply func(n int, r *http.Request, body string) (int, string)) (*Client, *[]string) {
	t.Helper()
	s := newServer(t)
	var sent []string
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		status, text := reply(n, r, string(body))
		s.mu.Lock()
		sent = append(sent, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		s.mu.Unlock()
		w.WriteHeader(status)
		io.WriteString(w, text)
		return true
	}
	return s.client(nil), &sent
}

func TestBuckets(t *testing.T) {
	c, _ := replies(t, func(n int, _ *http.Request, _ string) (int, string) {
		next := ""
		if n == 1 {
			next = "<ContinuationToken>t</ContinuationToken>"
		}
		return 200, fmt.Sprintf("<ListAllMyBucketsResult><Buckets><Bucket><Name>b%d</Name><CreationDate>2026-01-02T03:04:05Z"+
			"</CreationDate></Bucket></Buckets>%s</ListAllMyBucketsResult>", n, next)
	})
	all, err := c.Admin().ListBuckets(bg)
	if err != nil || len(all) != 2 || all[1].Name != "b2" || all[0].Created.Year() != 2026 {
		t.Errorf("%+v, %v", all, err)
	}
	c, _ = replies(t, func(n int, _ *http.Request, _ string) (int, string) {
		return 200, fmt.Sprintf("<ListAllMyBucketsResult><Buckets><Bucket><Name>b</Name></Bucket></Buckets>"+
			"<ContinuationToken>%d</ContinuationToken></ListAllMyBucketsResult>", n)
	})
	if _, err := c.Admin().ListBuckets(bg); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "does not end") {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"<html>",
		"<ListAllMyBucketsResult><Buckets><Bucket><Name>a/b</Name></Bucket></Buckets></ListAllMyBucketsResult>"} {
		c, _ = replies(t, func(int, *http.Request, string) (int, string) { return 200, text })
		if _, err := c.Admin().ListBuckets(bg); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%q: %v", text, err)
		}
	}
	c, sent := replies(t, func(int, *http.Request, string) (int, string) { return 200, "" })
	c.o.Region = "eu-west-1"
	if err := c.Admin().CreateBucket(bg, "box"); err != nil || !strings.Contains((*sent)[0], "PUT /box ") ||
		!strings.Contains((*sent)[0], "<LocationConstraint>eu-west-1<") {
		t.Errorf("%v, %q", err, *sent)
	}
	c, _ = replies(t, func(int, *http.Request, string) (int, string) {
		return 409, "<Error><Code>BucketAlreadyOwnedByYou</Code></Error>"
	})
	if err := c.Admin().CreateBucket(bg, "box"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"", "a/b", "a?b"} {
		if !errs.Is(c.Admin().CreateBucket(bg, name), errs.Invalid) ||
			!errs.Is(c.Admin().DeleteBucket(bg, name), errs.Invalid) {
			t.Errorf("%q is taken", name)
		}
	}
}

func doomed(keys ...string) (all []Doomed) {
	for _, k := range keys {
		all = append(all, Doomed{Key: k})
	}
	return all
}

func TestDeleteMany(t *testing.T) {
	c, sent := replies(t, func(int, *http.Request, string) (int, string) {
		return 200, "<DeleteResult><Error><Key>b&amp;</Key><Code>AccessDenied</Code></Error><Error><Key>c</Key><Code>NoSuchKey</Code></Error></DeleteResult>"
	})
	fails, err := c.Admin().DeleteMany(bg, "box", doomed("a", "b&", "c"))
	if err != nil || fails[0] != nil || !errs.Is(fails[1], errs.Permission) || fails[2] != nil ||
		!strings.Contains(fails[1].Error(), "s3://box/b&") {
		t.Errorf("%v, %v", fails, err)
	}
	if len(*sent) != 1 || !strings.Contains((*sent)[0], "<Key>b&amp;</Key>") {
		t.Errorf("%q", *sent)
	}
	// A key that XML would change is deleted alone, under its own name.
	c, sent = replies(t, func(int, *http.Request, string) (int, string) { return 204, "" })
	if _, err := c.Admin().DeleteMany(bg, "box", doomed("a\x01b")); err != nil || len(*sent) != 1 ||
		!strings.HasPrefix((*sent)[0], "DELETE /box/a%01b") {
		t.Errorf("%v, %q", err, *sent)
	}
	for _, status := range []int{501, 405, 400} {
		c, sent = replies(t, func(_ int, r *http.Request, _ string) (int, string) {
			if r.Method == http.MethodPost {
				return status, "<Error><Code>NotImplemented</Code></Error>"
			}
			return 204, ""
		})
		for range 2 {
			if fails, err := c.Admin().DeleteMany(bg, "box", doomed("a", "b")); err != nil || errors.Join(fails...) != nil {
				t.Errorf("%d: %v, %v", status, fails, err)
			}
		}
		if len(*sent) != 5 {
			t.Errorf("%d: a server without batches was asked again: %q", status, *sent)
		}
	}
	c, _ = replies(t, func(int, *http.Request, string) (int, string) { return 403, "" })
	if _, err := c.Admin().DeleteMany(bg, "box", doomed("a")); !errs.Is(err, errs.Permission) {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"", "<html>", "<DeleteResult><Error><Key>other</Key></Error></DeleteResult>"} {
		c, _ = replies(t, func(int, *http.Request, string) (int, string) { return 200, text })
		if _, err := c.Admin().DeleteMany(bg, "box", doomed("a")); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := c.Admin().DeleteMany(bg, "box", make([]Doomed, MostDeletes+1)); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
}

func TestListVersions(t *testing.T) {
	c, sent := replies(t, func(int, *http.Request, string) (int, string) {
		return 200, "<ListVersionsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>" +
			"<NextKeyMarker>a%2Fc</NextKeyMarker><NextVersionIdMarker>2</NextVersionIdMarker>" +
			"<DeleteMarker><Key>a%2Fb</Key><VersionId>3</VersionId><IsLatest>true</IsLatest></DeleteMarker>" +
			"<Version><Key>a%2Fb</Key><VersionId>1</VersionId><Size>5</Size></Version>" +
			"<Version><Key>a%2Fc</Key><VersionId>null</VersionId><IsLatest>true</IsLatest></Version></ListVersionsResult>"
	})
	p, err := c.Admin().ListVersions(bg, "box", "a/", "k", "v")
	if err != nil || len(p.Entries) != 3 || p.NextKey != "a/c" || p.NextVersion != "2" || p.Entries[0].Key != "a/b" ||
		!p.Entries[0].Marker || p.Entries[1].Version != "1" || p.Entries[2].Version != "null" {
		t.Errorf("%+v, %v", p, err)
	}
	if !strings.Contains((*sent)[0], "key-marker=k") || !strings.Contains((*sent)[0], "version-id-marker=v") {
		t.Errorf("%q", *sent)
	}
	c, _ = replies(t, func(int, *http.Request, string) (int, string) {
		return 200,
			"<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>u</UploadId></Upload></ListMultipartUploadsResult>"
	})
	if all, err := c.Admin().ListUnfinished(bg, "box", ""); err != nil || len(all) != 1 ||
		all[0] != (Unfinished{"k", "u"}) {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestWarmAsksANode(t *testing.T) {
	for text, want := range map[string]string{
		`{"size":10,"cached":5,"running":true}`:          "",
		`{"size":10,"error":"no room","fix":"raise it"}`: "no room",
		`<html>`:      "no NebulaIO node",
		`{"size":-1}`: "no NebulaIO node",
		`400<Error><Code>InvalidRequest</Code></Error>`:        "InvalidRequest",
		`404<Error><Code>NoSuchKey</Code></Error>`:             "NoSuchKey",
		`404<Error><Code>NoSuchBucket</Code></Error>`:          "no NebulaIO node",
		`403<Error><Code>SignatureDoesNotMatch</Code></Error>`: "SignatureDoesNotMatch",
		`501<Error><Code>NotImplemented</Code></Error>`:        "no NebulaIO node",
	} {
		c, sent := replies(t, func(int, *http.Request, string) (int, string) {
			status := 200
			if n, _ := fmt.Sscanf(text, "%d", &status); n == 1 {
				return status, text[3:]
			}
			return 200, text
		})
		w, err := c.Admin().Warm(bg, "box", "a b", "24h")
		if want == "" && (err != nil || w.Cached != 5) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %+v, %v", text, w, err)
		}
		if (*sent)[0] != "GET /.nebulaio/warm?bucket=box&key=a%20b&pin=24h " {
			t.Errorf("%q", (*sent)[0])
		}
	}
}

// Keys come anew for each request, and the failure of their provider is not repeated.
func TestCredentialsOfAProvider(t *testing.T) {
	s := newServer(t)
	s.put("b/k", noise(10, 1))
	n := 0
	var fail error
	c := s.client(func(o *Options) {
		o.AccessKey, o.SecretKey = "", ""
		o.Credentials = func(context.Context) (Credentials, error) {
			n++
			return Credentials{AccessKey: fmt.Sprintf("K%d", n), SecretKey: "s"}, fail
		}
	})
	var seen []string
	s.odd = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		_, key, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		key, _, _ = strings.Cut(key, "/")
		seen = append(seen, key)
		return false
	}
	for range 2 {
		if _, err := c.Head(bg, "b", "k", ""); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Join(seen, " ") != "K1 K2" {
		t.Errorf("%q", seen)
	}
	fail = errs.New(errs.Permission, "get keys from", "x", "no").WithFix("log in")
	if _, err := c.Head(bg, "b", "k", ""); !errs.Is(err, errs.Permission) || errs.FixOf(err) != "log in" || n != 3 {
		t.Errorf("%v after %d", err, n)
	}
	if _, err := New(Options{Endpoint: "http://h", AccessKey: "a", SecretKey: "b",
		Credentials: Static(Credentials{})}); err == nil {
		t.Error("keys and a provider are taken")
	}
	host, err := New(Options{Endpoint: "http://h:1", VirtualHost: true})
	if err != nil {
		t.Fatal(err)
	}
	for bucket, want := range map[string]string{"b": "http://b.h:1/k", "a.b": "http://h:1/a.b/k"} {
		if u, err := host.address(&call{bucket: bucket, key: "k"}); err != nil || u.String() != want {
			t.Errorf("%s: %v, %v", bucket, u, err)
		}
	}
}

func FuzzBucketReplies(f *testing.F) {
	f.Add([]byte("<ListAllMyBucketsResult><Buckets><Bucket><Name>b</Name></Bucket></Buckets></ListAllMyBucketsResult>"))
	f.Add([]byte("<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker><Version><Key>k</Key></Version></ListVersionsResult>"))
	f.Add([]byte("<DeleteResult><Error><Key>a</Key><Code>x</Code></Error></DeleteResult>"))
	f.Add(
		[]byte(
			"<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>u</UploadId></Upload></ListMultipartUploadsResult>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if all, _, err := parseBuckets(body); err == nil {
			for _, b := range all {
				if b.Name == "" || strings.Contains(b.Name, "/") {
					t.Fatalf("%q", b.Name)
				}
			}
		}
		if p, err := parseVersions(body); err == nil {
			for _, v := range p.Entries {
				if v.Key == "" || v.Size < 0 {
					t.Fatalf("%+v", v)
				}
			}
		}
		if fails, err := parseDeletes(body, "b", doomed("a", "c")); err == nil && len(fails) != 2 {
			t.Fatalf("%v", fails)
		}
		if all, err := parseUnfinished(body); err == nil {
			for _, u := range all {
				if u.Key == "" || u.ID == "" {
					t.Fatalf("%+v", u)
				}
			}
		}
	})
}
