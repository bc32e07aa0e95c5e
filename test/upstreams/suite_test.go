// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/nebulaio/nebulaio/test/s3suite/player"
	"github.com/nebulaio/nebulaio/test/upstreams"
)

// concerns selects the tests of versitygw's suite that are about objects, uploads, versions and locks. Tests of
// accounts, policies and other settings of buckets concern the node and not the upstream; test/s3suite runs them.
var concerns = regexp.MustCompile(`^(PutObject|GetObject|HeadObject|GetObjectAttributes|ListObjects|ListObjectsV2|` +
	`DeleteObject|DeleteObjects|CopyObject|CreateMultipartUpload|UploadPart|UploadPartCopy|ListParts|` +
	`ListMultipartUploads|AbortMultipartUpload|CompleteMultipartUpload|PutObjectTagging|GetObjectTagging|` +
	`DeleteObjectTagging|ListObjectVersions|Versioning|GetBucketVersioning|PutBucketVersioning|` +
	`GetObjectLockConfiguration|PutObjectLockConfiguration|GetObjectRetention|PutObjectRetention|` +
	`GetObjectLegalHold|PutObjectLegalHold|WORMProtection)_`)

// The suite numbers its buckets, beginning anew in each process. Each number is an upstream bucket of the node. The
// tests run in batches, so that the numbers suffice. Some tests wait for a retention to end: a few tests run at once.
const bucketsOfSuite, batch, atOnce = 250, 60, 4

// play runs tests of the suite in batches.
func play(t *testing.T, u *upstreams.Upstream, target player.Target, names []string) map[string]*player.Result {
	t.Helper()
	all := map[string]*player.Result{}
	for some := range slices.Chunk(names, batch) {
		emptySuite(t, u)
		maps.Copy(all, player.Run(t, target, strings.Join(some, ",")))
	}
	emptySuite(t, u)
	return all
}

// ours lists, for each upstream, the tests that pass at the upstream and fail through the node, with the reason. A test
// that passes must be removed from the list.
var ours = map[upstreams.Kind]map[string]string{}

// once are tests that have failed at the node alone before. They are always run.
var once = []string{"CompleteMultipartUpload_racey_success", "DeleteObjects_empty_input", "PutObject_with_object_lock",
	"UploadPartCopy_should_copy_the_checksum"}

// share is the part of the suite that is run unless all tests are asked for: one test of so many.
const share = 8

// chosen returns the tests of the suite that are run.
func chosen() []string {
	names := slices.DeleteFunc(player.Names(), func(name string) bool { return !concerns.MatchString(name) })
	if only := os.Getenv(enable + "_TESTS"); only != "" {
		return strings.Split(only, ",")
	}
	if all() {
		return names
	}
	some := slices.Clone(once)
	for i := 0; i < len(names); i += share {
		if !slices.Contains(some, names[i]) {
			some = append(some, names[i])
		}
	}
	return some
}

// TestSuiteThroughANode runs versitygw's suite at a node in front of an upstream, and the tests that fail there at the
// upstream itself. What passes at the upstream must pass at the node: other failures are the upstream's own. With
// NEBULAIO_UPSTREAMS_ALL, all tests of the suite are run, and else a share of them.
func TestSuiteThroughANode(t *testing.T) {
	needsUpstreams(t)
	t.Parallel()
	for _, kind := range []upstreams.Kind{upstreams.MinIO, upstreams.Ceph} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			u := upstream(t, kind)
			names := chosen()
			var list []bucketAt
			for i := range bucketsOfSuite {
				list = append(list, bucketAt{name: fmt.Sprintf("test-bucket-%d", i+1), endpoint: u.Endpoint})
			}
			n := startNode(t, tempDir(t), configuration(list, ""))
			through := player.Target{Endpoint: front(t, u, n.host), Access: user, Secret: password, AtOnce: atOnce}
			direct := player.Target{Endpoint: front(t, u, u.Host()), Access: upstreams.Access, Secret: upstreams.Secret,
				AtOnce: atOnce}
			c := comparison{kind: kind,
				through: func(names []string) map[string]*player.Result { return play(t, u, through, names) },
				direct:  func(names []string) map[string]*player.Result { return play(t, u, direct, names) }}
			c.run(t, names)
		})
	}
}

// comparison judges tests at a node by the same tests at its upstream.
type comparison struct {
	kind            upstreams.Kind
	through, direct func(names []string) map[string]*player.Result
}

// run runs tests at the node, those that fail also at the upstream, and those that fail at the node alone a second
// time, because a few have time limits.
func (c *comparison) run(t *testing.T, names []string) {
	t.Helper()
	first := c.through(names)
	failed := failures(names, first)
	alone := c.direct(failed)
	theirs := failures(failed, alone)
	worse := slices.DeleteFunc(failed, func(name string) bool { return slices.Contains(theirs, name) })
	if len(worse) > 0 && len(worse) < 60 {
		worse = failures(worse, c.through(worse))
	}
	t.Logf("%d tests: %d pass at the node, %d fail at %s itself, %d fail at the node alone", len(names),
		len(names)-len(theirs)-len(worse), len(theirs), c.kind, len(worse))
	t.Logf("failures of %s itself: %s", c.kind, strings.Join(theirs, " "))
	causes := map[string]string{}
	for _, name := range theirs {
		if causes[name] = "it did not run"; alone[name] != nil {
			causes[name] = alone[name].Why
		}
	}
	record(t, c.kind, "suite", causes)
	for _, name := range worse {
		if ours[c.kind][name] == "" {
			why := "it did not run"
			if first[name] != nil {
				why = first[name].Why
			}
			t.Errorf("%s passes at %s and fails at the node: %s", name, c.kind, why)
		}
	}
	for name := range ours[c.kind] {
		if !slices.Contains(worse, name) && slices.Contains(names, name) {
			t.Errorf("%s is listed as failing and does not fail: take it out of the list", name)
		}
	}
	if passed := len(names) - len(theirs) - len(worse); passed < len(names)/2 && os.Getenv(enable+"_TESTS") == "" {
		t.Errorf("only %d tests pass at the node", passed)
	}
}

// failures returns the names of tests that failed or did not run.
func failures(names []string, results map[string]*player.Result) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return results[name].OK() })
}

// front stands between clients and the server at host, which is a node or the upstream itself. It makes, lists and
// removes buckets at the upstream, because upstream buckets are settings of a node and not made by its clients.
// Everything else goes to the server as it came.
func front(t *testing.T, u *upstreams.Upstream, host string) string {
	t.Helper()
	to, err := url.Parse("http://" + host)
	if err != nil {
		t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // it is signed
	}, ErrorLog: log.New(io.Discard, "", 0)} // clients of some tests leave early
	theirs := direct(t, u)
	s := httptest.NewServer(http.HandlerFunc(func(reply http.ResponseWriter, r *http.Request) {
		w := &speller{reply}
		bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		query := r.URL.Query()
		query.Del("x-id") // names the operation
		var err error
		switch {
		case bucket == "" && r.Method == http.MethodGet:
			var list []minio.BucketInfo
			if list, err = theirs.ListBuckets(r.Context()); err == nil {
				answerBuckets(w, list)
				return
			}
		case key != "" || len(query) > 0 || bucket == "":
			pass.ServeHTTP(w, r)
			return
		case r.Method == http.MethodPut && s3utils.CheckValidBucketNameStrict(bucket) == nil:
			err = theirs.MakeBucket(r.Context(), bucket, minio.MakeBucketOptions{Region: upstreams.Region,
				ObjectLocking: r.Header.Get("X-Amz-Bucket-Object-Lock-Enabled") == "true"})
		case r.Method == http.MethodDelete:
			// MinIO keeps the uploads of a bucket for the next bucket of that name.
			abortUploads(r.Context(), theirs, bucket)
			if err = theirs.RemoveBucket(r.Context(), bucket); err == nil {
				w.WriteHeader(http.StatusNoContent)
			}
		default:
			pass.ServeHTTP(w, r)
			return
		}
		if err != nil {
			answerError(w, err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// speller restores the names of user metadata, which have small letters in replies of S3. Package http spells them with
// capitals.
type speller struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (s *speller) WriteHeader(status int) {
	h := s.Header()
	for name, values := range h {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			delete(h, name)
			h[strings.ToLower(name)] = values
		}
	}
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (s *speller) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// answerBuckets answers a request for the list of buckets.
func answerBuckets(w http.ResponseWriter, list []minio.BucketInfo) {
	type bucket struct{ Name, CreationDate string }
	x := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListAllMyBucketsResult"`
		Buckets []bucket `xml:"Buckets>Bucket"`
	}{}
	for _, b := range list {
		x.Buckets = append(x.Buckets, bucket{b.Name, b.CreationDate.UTC().Format(time.RFC3339)})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(x) // the client has gone if it fails
}

// answerError answers with the error of the upstream.
func answerError(w http.ResponseWriter, err error) {
	e := minio.ToErrorResponse(err)
	if e.StatusCode == 0 {
		e.StatusCode, e.Code, e.Message = http.StatusBadGateway, "InternalError", err.Error()
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(e.StatusCode)
	_ = xml.NewEncoder(w).Encode(struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}{Code: e.Code, Message: e.Message})
}

// emptySuite removes buckets that tests of the suite have left at the upstream.
func emptySuite(t *testing.T, u *upstreams.Upstream) {
	t.Helper()
	c := direct(t, u)
	list, err := c.ListBuckets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		if !strings.HasPrefix(b.Name, "test-bucket-") {
			continue
		}
		removeBucket(t.Context(), c, b.Name)
		if u.Kind == upstreams.MinIO {
			// Nobody may remove objects under compliance retention, so that the next test with this number would fail.
			for _, dir := range []string{b.Name, filepath.Join(".minio.sys/buckets", b.Name)} {
				if err := os.RemoveAll(filepath.Join(u.Dir, dir)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func removeBucket(ctx context.Context, c *minio.Core, bucket string) {
	for o := range c.Client.ListObjects(ctx, bucket, minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
		if o.Err == nil {
			_ = c.RemoveObject(ctx, bucket, o.Key, minio.RemoveObjectOptions{VersionID: o.VersionID, GovernanceBypass: true,
				ForceDelete: false})
		}
	}
	abortUploads(ctx, c, bucket)
	_ = c.RemoveBucket(ctx, bucket)
}

func abortUploads(ctx context.Context, c *minio.Core, bucket string) {
	for o := range c.ListIncompleteUploads(ctx, bucket, "", true) {
		if o.Err == nil {
			_ = c.AbortMultipartUpload(ctx, bucket, o.Key, o.UploadID)
		}
	}
}
