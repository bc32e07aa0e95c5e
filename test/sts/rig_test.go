// SPDX-License-Identifier: Apache-2.0

// Package sts_test exchanges the tokens of a real issuer for temporary keys, and uses the keys in S3, at the door and
// in the console.
package sts_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/test/built"
	"github.com/nebulaio/nebulaio/test/console/started"
	"github.com/nebulaio/nebulaio/test/issuer"
)

// clock is a clock that a test moves.
type clock struct {
	mu sync.Mutex
	by time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.by)
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by += d
}

// program is an issuer in a process of its own.
type program struct {
	t   *testing.T
	url string
}

// programFile is the file of the issuer's program, which TestMain builds.
var programFile string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "issuer")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programFile, err = built.Program(dir, "test/issuer/serve")
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// startIssuer starts the issuer's program, which ends with the test.
func startIssuer(t *testing.T, algorithm string) *program {
	t.Helper()
	cmd := exec.Command(programFile, "-alg", algorithm)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // ends the program
		if err := cmd.Wait(); err != nil {
			t.Errorf("the issuer: %v", err)
		}
	})
	var said struct{ Issuer string }
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &program{t, said.Issuer}
}

func (p *program) post(path string, body any, into any) {
	p.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.Post(p.url+path, "application/json", bytes.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s", path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		p.t.Fatal(err)
	}
}

// token returns a token of a user.
func (p *program) token(w issuer.Token) string {
	p.t.Helper()
	if w.Audience == nil {
		w.Audience = []string{"storage"}
	}
	if w.Seconds == 0 {
		w.Seconds = 24 * 3600
	}
	var got struct {
		Token string `json:"id_token"`
	}
	p.post("/token", w, &got)
	return got.Token
}

func (p *program) rotate(algorithm string, withdraw bool) {
	p.t.Helper()
	p.post(fmt.Sprintf("/rotate?alg=%s&withdraw=%t", algorithm, withdraw), nil, &struct{}{})
}

// keys are keys with their token, which is empty for those of a user.
type keys struct{ access, secret, token string }

var rootKeys = keys{started.RootUser, started.RootPassword, ""}

// rig is a server with a door, a console and two issuers.
type rig struct {
	t       *testing.T
	s       *started.Server
	issuers [2]*program
	clock   *clock
	sys     *nebulaio.System
	options started.Options
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, clock: &clock{}, issuers: [2]*program{startIssuer(t, "RS256"), startIssuer(t, "ES256")}}
	dir, err := os.MkdirTemp("", "sts") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "c.yaml")
	text := fmt.Sprintf("oidc:\n  company:\n    issuer: %s\n    audiences: [storage]\n  ci:\n    issuer: %s\n"+
		"    audiences: [builds]\n    policies: [readonly]\n    policy_claim: ''\n", r.issuers[0].url, r.issuers[1].url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.options = started.Options{File: file, Now: r.clock.now, Settings: map[string]string{
		"data": filepath.Join(t.TempDir(), "store"), "gpudirect.enabled": "true",
		"gpudirect.socket": filepath.Join(dir, "door")}}
	r.s = started.RunWith(t, r.options)
	if r.sys, err = nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.sys.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// ask posts a form to the Security Token Service. It returns the keys, or the code of the error.
func (r *rig) ask(form url.Values) (keys, string) {
	r.t.Helper()
	form.Set("Version", "2011-06-15")
	resp, err := http.PostForm(r.s.Endpoint, form)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	at := func(name string) string {
		_, rest, _ := strings.Cut(string(body), "<"+name+">")
		value, _, _ := strings.Cut(rest, "</"+name+">")
		return value
	}
	if resp.StatusCode != http.StatusOK {
		return keys{}, at("Code")
	}
	return keys{at("AccessKeyId"), at("SecretAccessKey"), at("SessionToken")}, ""
}

// exchange exchanges a token for keys, which last an hour.
func (r *rig) exchange(token, policy string) (keys, string) {
	r.t.Helper()
	form := url.Values{"Action": {"AssumeRoleWithWebIdentity"}, "WebIdentityToken": {token}, "RoleSessionName": {"test"},
		"RoleArn": {"arn:aws:iam::000000000000:role/any"}}
	if policy != "" {
		form.Set("Policy", policy)
	}
	return r.ask(form)
}

// assume begins a session of a user with minio-go.
func (r *rig) assume(k keys, policy string) (keys, error) {
	r.t.Helper()
	c, err := credentials.NewSTSAssumeRole(r.s.Endpoint, credentials.STSAssumeRoleOptions{AccessKey: k.access,
		SecretKey: k.secret, SessionToken: k.token, Policy: policy, DurationSeconds: 3600})
	if err != nil {
		r.t.Fatal(err)
	}
	v, err := c.GetWithContext(&credentials.CredContext{Client: http.DefaultClient})
	return keys{v.AccessKeyID, v.SecretAccessKey, v.SessionToken}, err
}

func (r *rig) s3(k keys) *minio.Client {
	r.t.Helper()
	c, err := minio.New(strings.TrimPrefix(r.s.Endpoint, "http://"), &minio.Options{Region: r.s.Region,
		MaxRetries: 1, Creds: credentials.NewStaticV4(k.access, k.secret, k.token)})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// Results of a request.
const (
	fine   = "fine"
	denied = "denied"   // the keys are right, but may not do it
	noKeys = "bad keys" // unknown, expired, or without the right token
)

// way is one of the ways to the objects, with keys.
type way interface {
	get(bucket, key string) string
	put(bucket, key string) string
}

// ways returns every way to the objects with some keys.
func (r *rig) ways(k keys) map[string]way {
	r.t.Helper()
	return map[string]way{"S3": &byS3{r, r.s3(k)}, "door": newDoor(r, k), "console": newPage(r, k)}
}

// expect asks for the results of a read and a write on every way.
func (r *rig) expect(what string, ways map[string]way, key, get, put string) {
	r.t.Helper()
	for name, w := range ways {
		if got := w.get("models", key); got != get {
			r.t.Errorf("%s: %s: a read of %s is %s, expected %s", what, name, key, got, get)
		}
		if got := w.put("models", key); got != put {
			r.t.Errorf("%s: %s: a write of %s is %s, expected %s", what, name, key, got, put)
		}
	}
}

// byS3 sends S3 requests.
type byS3 struct {
	r *rig
	c *minio.Client
}

func (w *byS3) result(err error) string {
	switch code := minio.ToErrorResponse(err).Code; {
	case err == nil:
		return fine
	case code == "AccessDenied":
		return denied
	case code == "ExpiredToken" || code == "InvalidAccessKeyId" || code == "InvalidToken":
		return noKeys
	}
	return err.Error()
}

func (w *byS3) get(bucket, key string) string {
	o, err := w.c.GetObject(w.r.t.Context(), bucket, key, minio.GetObjectOptions{})
	if err == nil {
		_, err = io.Copy(io.Discard, o)
		_ = o.Close() // nothing was written
	}
	return w.result(err)
}

func (w *byS3) put(bucket, key string) string {
	_, err := w.c.PutObject(w.r.t.Context(), bucket, key, strings.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{})
	return w.result(err)
}

// content is large enough for a data file of its own, so that the door hands out the file.
var content = strings.Repeat("0123456789abcdef", 4096)

// atDoor uses the door, without asking S3 for it.
type atDoor struct {
	r   *rig
	c   *nebulaio.Client
	mem *nebulaio.Memory
}

func newDoor(r *rig, k keys) *atDoor {
	r.t.Helper()
	c, err := r.sys.NewClient(nebulaio.ClientOptions{Endpoint: r.s.Endpoint, AccessKey: k.access, SecretKey: k.secret,
		SessionToken: k.token, Door: r.s.Config.GPUDirect.Socket, Device: "host"})
	if err != nil {
		r.t.Fatal(err)
	}
	mem, err := r.sys.Alloc(r.t.Context(), "host", int64(len(content)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := errors.Join(c.Close(), mem.Free()); err != nil {
			r.t.Error(err)
		}
	})
	return &atDoor{r, c, mem}
}

func (w *atDoor) result(m *nebulaio.ObjectMove, err error) string {
	if err == nil {
		err = m.Wait()
	}
	switch {
	case err == nil:
		return fine
	case strings.Contains(err.Error(), "the access key is not known"):
		return noKeys
	case strings.Contains(err.Error(), "may not do"):
		return denied
	}
	return err.Error()
}

func (w *atDoor) get(bucket, key string) string {
	return w.result(w.c.StartRead(w.r.t.Context(),
		nebulaio.ObjectRead{Bucket: bucket, Key: key, Size: -1, Dst: w.mem.Ptr(), DstSize: w.mem.Size()}))
}

func (w *atDoor) put(bucket, key string) string {
	if err := w.mem.Write([]byte(content), 0); err != nil {
		return err.Error()
	}
	return w.result(w.c.StartWrite(w.r.t.Context(), nebulaio.ObjectWrite{Bucket: bucket, Key: key, Src: w.mem.Ptr(),
		Size: w.mem.Size()}))
}

// onPage uses the API of the console. If the keys cannot log in, every request has bad keys.
type onPage struct {
	r *rig
	b *started.Browser
}

func newPage(r *rig, k keys) *onPage {
	r.t.Helper()
	b := r.s.Browser()
	reply := b.JSON(http.MethodPost, "session", map[string]string{"access_key": k.access, "secret_key": k.secret,
		"session_token": k.token})
	var in struct{ CSRF string }
	if reply.Status == http.StatusOK {
		reply.Into(&in)
		b.CSRF = in.CSRF
	}
	return &onPage{r, b}
}

func (w *onPage) result(reply *started.Reply) string {
	switch reply.Status {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return fine
	case http.StatusForbidden:
		return denied
	case http.StatusUnauthorized:
		return noKeys
	}
	return fmt.Sprintf("%d %s", reply.Status, reply.Body)
}

func (w *onPage) get(bucket, key string) string {
	return w.result(w.b.JSON(http.MethodGet, "buckets/"+bucket+"/content?key="+url.QueryEscape(key), nil))
}

func (w *onPage) put(bucket, key string) string { return w.result(w.b.Put(bucket, key, content, nil)) }
