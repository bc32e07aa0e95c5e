// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"strings"
	"testing"
)

// logged returns a world whose access logs go to an auditor, with an empty bucket of alice that has an access log.
func logged(t *testing.T, header ...string) (*world, *auditor) {
	t.Helper()
	a := newAuditor()
	w := start(t, nil, a.options)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/logs", "")
	w.as("alice", 200, "PUT", "/pictures", "", header...)
	w.as("alice", 200, "PUT", "/pictures?logging", "<BucketLoggingStatus><LoggingEnabled><TargetBucket>logs</TargetBucket>"+
		"<TargetPrefix>p</TargetPrefix></LoggingEnabled></BucketLoggingStatus>")
	a.taken()
	return w, a
}

// accesses returns the lines of the access log since the last call.
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
