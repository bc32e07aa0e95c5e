// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/test/upstreams"
)

// clientRun is one run of the flows of test/clients: an environment of Python packages and the flows in it. The flows
// of some are run unless all are asked for.
type clientRun struct {
	venv        string
	files, some []string
}

// The flows that a client does with one bucket. The old packages have boto3 alone, as in make test-clients.
var clientRuns = []clientRun{
	{"new", []string{"test_awscli.py", "test_boto3.py", "test_s3cmd.py", "test_rclone.py"},
		[]string{"test_awscli.py::test_streams", "test_boto3.py::test_put_get_head_list_delete",
			"test_boto3.py::test_transfer_manager",
			"test_boto3.py::test_multipart_of_copies", "test_boto3.py::test_pages_with_delimiter", "test_s3cmd.py::test_sync",
			"test_rclone.py::test_sync_and_check"}},
	{"old", []string{"test_boto3.py"}, []string{"test_boto3.py::test_transfer_manager",
		"test_boto3.py::test_conditional_reads"}},
}

// bucketsOfFlows is the number of upstream buckets that the flows use in turn.
const bucketsOfFlows = 16

// TestClientsThroughANode runs the flows of aws-cli, boto3, s3cmd and rclone on upstream buckets of a node. A flow that
// fails is run at the upstream itself, and must fail there too. With NEBULAIO_UPSTREAMS_ALL, all flows are run.
func TestClientsThroughANode(t *testing.T) {
	needsUpstreams(t)
	t.Parallel()
	for _, kind := range []upstreams.Kind{upstreams.MinIO, upstreams.Ceph} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			u := upstream(t, kind)
			var list []bucketAt
			var names []string
			for i := range bucketsOfFlows {
				names = append(names, fmt.Sprintf("flow-%d", i+1))
				list = append(list, bucketAt{name: names[i], endpoint: u.Endpoint})
			}
			n := startNode(t, tempDir(t), configuration(list, ""))
			through := flows{endpoint: front(t, u, n.host), access: user, secret: password, names: names}
			alone := flows{endpoint: front(t, u, u.Host()), access: upstreams.Access, secret: upstreams.Secret, names: names}
			for _, r := range clientRuns {
				if !all() {
					r.files = r.some
				}
				compareFlows(t, u, r, &through, &alone)
			}
		})
	}
}

// compareFlows runs flows at the node, those that fail also at the upstream, and those that fail at the node alone a
// second time, because flows have time limits.
func compareFlows(t *testing.T, u *upstreams.Upstream, r clientRun, through, alone *flows) {
	t.Helper()
	remove := func() {
		for _, name := range through.names {
			removeBucket(t.Context(), direct(t, u), name)
		}
	}
	first := through.run(t, r.venv, r.files)
	remove()
	var failed, worse []string
	theirs := map[string]string{}
	for name, why := range first {
		if why != "" {
			failed = append(failed, name)
		}
	}
	slices.Sort(failed)
	if len(failed) > 0 {
		direct := alone.run(t, r.venv, failed)
		remove()
		for _, name := range failed {
			if direct[name] != "" {
				theirs[name] = direct[name]
			} else {
				worse = append(worse, name)
			}
		}
	}
	if len(worse) > 0 {
		second := through.run(t, r.venv, worse)
		remove()
		worse = slices.DeleteFunc(worse, func(name string) bool { why, ran := second[name]; return ran && why == "" })
	}
	t.Logf("%d flows with %s packages: %d pass at the node, %d fail at %s itself, %d fail at the node alone", len(first),
		r.venv, len(first)-len(failed)+len(failed)-len(theirs)-len(worse), len(theirs), u.Kind, len(worse))
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		t.Logf("%s fails at %s itself: %s", name, u.Kind, causeOf(theirs[name]))
	}
	record(t, u.Kind, "flows-"+r.venv, theirs)
	for _, name := range worse {
		t.Errorf("%s passes at %s and fails at the node: %s\n%s", name, u.Kind, causeOf(first[name]), last(first[name], 3000))
	}
	if len(first) < len(r.some) || len(first) < 10 && all() {
		t.Errorf("only %d flows ran", len(first))
	}
}

// flows runs clients against one server.
type flows struct {
	endpoint, access, secret string
	names                    []string // of the buckets
}

// run runs flows by the names of their files or by their own names. The result has the reason for each flow that failed
// and "" for each that passed.
func (f *flows) run(t *testing.T, venv string, which []string) map[string]string {
	t.Helper()
	root, err := filepath.Abs(upstreams.Root())
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(tempDir(t), "report.xml")
	bin := filepath.Join(root, ".venv-clients", venv, "bin")
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "python"), append([]string{"-m", "pytest", "-q", "-p",
		"no:cacheprovider", "--basetemp", filepath.Join(tempDir(t), "flows"), "--junitxml", report}, which...)...)
	cmd.Dir = filepath.Join(root, "test/clients")
	cmd.Env = append(nodeEnv(), "PATH="+bin+":"+os.Getenv("PATH"), "S3_ENDPOINT="+f.endpoint,
		"AWS_ACCESS_KEY_ID="+f.access, "AWS_SECRET_ACCESS_KEY="+f.secret, "S3_BUCKETS="+strings.Join(f.names, ","))
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 { // 1 means that flows have failed
		t.Fatalf("pytest: %v\n%s", err, last(string(out), 4000))
	}
	doc, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("%v\n%s", err, last(string(out), 4000))
	}
	results, err := readFlows(doc)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// readFlows reads a report of pytest. A flow whose clean-up failed has failed.
func readFlows(doc []byte) (map[string]string, error) {
	type fault struct {
		Message string `xml:"message,attr"` // without the end of a long message
		Text    string `xml:",chardata"`
	}
	var x struct {
		Cases []struct {
			File     string  `xml:"classname,attr"`
			Name     string  `xml:"name,attr"`
			Failures []fault `xml:"failure"`
			Errors   []fault `xml:"error"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(doc, &x); err != nil {
		return nil, fmt.Errorf("the report of pytest: %w", err)
	}
	results := map[string]string{}
	for _, c := range x.Cases {
		name := c.File + ".py::" + c.Name
		why := results[name]
		for _, f := range append(c.Failures, c.Errors...) {
			if why = strings.TrimSpace(f.Message + "\n" + f.Text); why == "" {
				why = "it failed"
			}
		}
		results[name] = why
	}
	return results, nil
}
