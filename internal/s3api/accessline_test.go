// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"strings"
	"testing"
	"time"
)

// logged returns a world whose access logs go to an auditor, with an empty bucket of alice that has an access log.
func logged(t *testing.T, header ...string) (*world, *auditor) {
	t.Helper()
	a := newAuditor()
	w := start(t, nil, a.options)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/logs", "")
	w.as("alice", 200, "PUT", "/pictures", "", header...)
	w.as("alice", 200, "PUT", "/pictures?logging", "<BucketLoggingStatus><LoggingEnabled><TargetBucket>logs"+
		"</TargetBucket><TargetPrefix>p</TargetPrefix></LoggingEnabled></BucketLoggingStatus>")
	a.taken()
	return w, a
}

// accesses returns the lines that were added to the access log since the last call of accesses.
func (a *auditor) accesses() []string {
	var lines []string
	for line := range strings.SplitSeq(a.taken(), "\n") {
		if rest, ok := strings.CutPrefix(line, "log of pictures: "); ok {
			lines = append(lines, rest)
		}
	}
	return lines
}

// TestEachDeletedKeyHasALine deletes lists of keys. The names of the fields are those of Amazon S3.
func TestEachDeletedKeyHasALine(t *testing.T) {
	w, a := logged(t)
	w.as("alice", 200, "PUT", "/pictures/a%20b", "x")
	w.as("alice", 204, "PUT", "/pictures?policy", policyOf(statement("Allow", "bob", "s3:DeleteObject", "pictures/*"),
		statement("Deny", "bob", "s3:DeleteObject", "pictures/kept")))
	a.accesses()
	list := func(quiet string, keys ...string) string {
		return "<Delete>" + quiet + "<Object><Key>" + strings.Join(keys, "</Key></Object><Object><Key>") +
			"</Key></Object></Delete>"
	}
	for _, quiet := range []string{"", "<Quiet>true</Quiet>"} {
		w.as("bob", 200, "POST", "/pictures?delete", list(quiet, "a b", "none", "kept"))
		lines := a.accesses()
		if len(lines) != 3 || !strings.Contains(lines[0],
			" REST.POST.MULTI_OBJECT_DELETE - ") {
			t.Fatalf("%q: the lines are\n%s", quiet, strings.Join(lines, "\n"))
		}
		for i, key := range []string{"a%2520b", "none"} {
			want := " bob identifier BATCH.DELETE.OBJECT " + key + " - 204 - - - - - - - - identifier SigV4 - AuthHeader " +
				w.addr + " - - -"
			if !strings.HasPrefix(lines[i+1], "alice pictures ") || !strings.HasSuffix(lines[i+1], want) ||
				len(strings.Fields(lines[i+1])) != 25 { // without the time, which has two of 27 words
				t.Errorf("%q: the line is\n%s\nexpected\n%s", quiet, lines[i+1], want)
			}
		}
	}
	// A refused list has deleted nothing.
	w.as("bob", 400, "POST", "/pictures?delete", "<Delete></Delete>")
	if lines := a.accesses(); len(lines) != 1 {
		t.Errorf("a refused list: %q", lines)
	}
	// The version is that of the request, or that of the new delete marker.
	w.as("alice", 200, "PUT", "/pictures?versioning",
		"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	version := w.as("alice", 200, "PUT", "/pictures/v", "x").Header.Get("x-amz-version-id")
	a.accesses()
	r := w.as("alice", 200, "POST", "/pictures?delete", "<Delete><Object><Key>v</Key><VersionId>"+version+
		"</VersionId></Object><Object><Key>v</Key></Object></Delete>")
	marker := between(string(r.body), "<DeleteMarkerVersionId>", "</DeleteMarkerVersionId>")
	lines := a.accesses()
	if len(lines) != 3 || marker == "" || !strings.Contains(lines[1], " v - 204 - - - - - - - "+version+" ") ||
		!strings.Contains(lines[2], " v - 204 - - - - - - - "+marker+" ") {
		t.Errorf("%s, %s: the lines are\n%s", version, marker, strings.Join(lines, "\n"))
	}
	// A bucket without an access log has no lines.
	w.as("alice", 200, "PUT", "/pictures?logging", "<BucketLoggingStatus></BucketLoggingStatus>")
	a.accesses()
	w.as("alice", 200, "POST", "/pictures?delete", list("", "a b"))
	if lines := a.accesses(); len(lines) != 0 {
		t.Errorf("without an access log: %q", lines)
	}
}

// TestTheLogTellsWhetherAnACLWasNeeded sends requests that an ACL allows, and requests that policies or roles allow.
func TestTheLogTellsWhetherAnACLWasNeeded(t *testing.T) {
	w, a := logged(t, "x-amz-object-ownership", "ObjectWriter", "x-amz-acl", "public-read-write")
	w.as("alice", 200, "PUT", "/pictures/open", "x", "x-amz-acl", "public-read")
	w.as("alice", 200, "PUT", "/pictures/mine", "x")
	w.as("alice", 204, "PUT", "/pictures?policy", policyOf(statement("Allow", "bob", "s3:GetObject", "pictures/mine"),
		`{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::pictures/shown"}`))
	w.as("alice", 200, "PUT", "/pictures/shown", "x", "x-amz-acl", "public-read")
	w.people("carl")
	w.allows("carl", "Allow s3:GetObject *")
	list := "<Delete><Object><Key>b</Key></Object></Delete>"
	a.accesses()
	for _, c := range []struct {
		who, method, path, body string
		status                  int
		want                    string // of each line
	}{
		{"bob", "GET", "/pictures/open", "", 200, "Yes"},
		{"bob", "HEAD", "/pictures/open", "", 200, "Yes"},
		{"bob", "GET", "/pictures/mine", "", 200, "-"}, // the policy of the bucket allows it
		{"bob", "GET", "/pictures/shown", "", 200, "-"},
		{"bob", "GET", "/pictures?list-type=2", "", 200, "Yes"},
		{"bob", "PUT", "/pictures/b", "x", 200, "Yes"},
		{"bob", "GET", "/pictures/b?acl", "", 200, "Yes"},
		{"bob", "DELETE", "/pictures/b", "", 204, "Yes"},
		{"bob", "POST", "/pictures?delete", list, 200, "Yes Yes"},
		{"bob", "GET", "/pictures/none", "", 404, "-"}, // no object, so nothing was allowed
		{"bob", "GET", "/pictures?policy", "", 403, "-"},
		{"alice", "GET", "/pictures/open", "", 200, "-"}, // the owner needs no ACL
		{"alice", "GET", "/pictures/mine", "", 200, "-"},
		{"alice", "PUT", "/pictures/b", "x", 200, "-"},
		{"alice", "GET", "/pictures?list-type=2", "", 200, "-"},
		{"alice", "POST", "/pictures?delete", list, 200, "- -"},
		{"", "GET", "/pictures/open", "", 200, "Yes"},
		{"", "GET", "/pictures/shown", "", 200, "-"},
		{"", "GET", "/pictures?list-type=2", "", 200, "Yes"},
		{"", "GET", "/pictures/mine", "", 403, "-"},
		{rootKey, "GET", "/pictures/open", "", 200, "-"},
		{rootKey, "PUT", "/pictures/b", "x", 200, "-"},
		{"carl", "GET", "/pictures/open", "", 200, "-"}, // a policy of the user allows it
		{"carl", "PUT", "/pictures/b", "x", 200, "Yes"},
	} {
		secret := c.who + "-secret"
		if c.who == rootKey {
			secret = rootSecret
		}
		var header []string
		if c.body != "" {
			header = []string{"Content-MD5", md5Base64(c.body)}
		}
		r, err := w.try(c.who, secret, c.method, c.path, []byte(c.body), header...)
		if err != nil || r.StatusCode != c.status {
			t.Fatalf("%q %s %s: %v, %+v", c.who, c.method, c.path, err, r)
		}
		var got []string
		for _, line := range a.accesses() {
			got = append(got, line[strings.LastIndexByte(line, ' ')+1:])
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q %s %s: %q, expected %s", c.who, c.method, c.path, got, c.want)
		}
	}
	w.postedAs("bob", "bob-secret", time.Now(), 204, "pictures", "form")
	w.postedAs("alice", "alice-secret", time.Now(), 204, "pictures", "form")
	lines := a.accesses()
	if len(lines) != 2 || !strings.HasSuffix(lines[0], " - Yes") || !strings.HasSuffix(lines[1], " - -") {
		t.Errorf("forms: %q", lines)
	}
}
