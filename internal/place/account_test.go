// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// home writes AWS files and returns an environment with them.
func home(t *testing.T, config, credentials string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".aws"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"config": config, "credentials": credentials} {
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, ".aws", name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return map[string]string{"HOME": dir}
}

func with(env map[string]string, more ...string) func(string) string {
	all := map[string]string{}
	for k, v := range env {
		all[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return func(name string) string { return all[name] }
}

// keys returns the keys of an account as access/secret/token.
func keys(t *testing.T, a Account) string {
	t.Helper()
	if a.Credentials == nil {
		return "none"
	}
	k, err := a.Credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return k.AccessKey + "/" + k.SecretKey + "/" + k.SessionToken
}

const someConfig = `
[default]
region = eu-west-1
[profile other]
region = eu-north-1
endpoint_url = http://other:1
services = mine
ca_bundle = /ca.pem
[services mine]
s3 =
  endpoint_url = http://mine:2
[profile plain]
region = cn-north-1
`

const someKeys = `
[default]
aws_access_key_id = D
aws_secret_access_key = ds
[other]
aws_access_key_id = O
aws_secret_access_key = os
aws_session_token = ot
[plain]
aws_access_key_id = P
aws_secret_access_key = ps
`

func TestResolveAsTheAWSTools(t *testing.T) {
	files := home(t, someConfig, someKeys)
	none := map[string]string{"HOME": t.TempDir()}
	for name, c := range map[string]struct {
		s              Settings
		env            func(string) string
		endpoint, keys string
		region         string
	}{
		"nothing": {Settings{}, with(none), LocalEndpoint, "none", "us-east-1"},
		"no home": {Settings{}, with(nil), LocalEndpoint, "none", "us-east-1"},
		"variables": {Settings{}, with(none, "AWS_ACCESS_KEY_ID", "E", "AWS_SECRET_ACCESS_KEY", "es",
			"AWS_SESSION_TOKEN", "et", "AWS_REGION", "r", "AWS_ENDPOINT_URL", "http://e:1"), "http://e:1", "E/es/et", "r"},
		"variables of S3": {Settings{}, with(none, "AWS_ENDPOINT_URL", "http://e:1", "AWS_ENDPOINT_URL_S3",
			"http://s:1", "AWS_DEFAULT_REGION", "q"), "http://s:1", "none", "q"},
		"ours": {Settings{}, with(files, "NEBULAIO_ACCESS_KEY", "N", "NEBULAIO_SECRET_KEY", "ns",
			"AWS_ACCESS_KEY_ID", "E", "AWS_SECRET_ACCESS_KEY", "es", "NEBULAIO_ENDPOINT", "h:9"), "http://h:9", "N/ns/",
			"eu-west-1"},
		"default profile": {Settings{}, with(files), LocalEndpoint, "D/ds/", "eu-west-1"},
		"variables over profile": {Settings{}, with(files, "AWS_ACCESS_KEY_ID", "E", "AWS_SECRET_ACCESS_KEY", "es"),
			LocalEndpoint, "E/es/", "eu-west-1"},
		"AWS_PROFILE": {Settings{}, with(files, "AWS_PROFILE", "other"), "http://mine:2", "O/os/ot", "eu-north-1"},
		"variables over AWS_PROFILE": {Settings{}, with(files, "AWS_PROFILE", "other", "AWS_ACCESS_KEY_ID", "E",
			"AWS_SECRET_ACCESS_KEY", "es"), "http://mine:2", "E/es/", "eu-north-1"},
		"--profile over variables": {Settings{Profile: "other"}, with(files, "AWS_ACCESS_KEY_ID", "E",
			"AWS_SECRET_ACCESS_KEY", "es"), "http://mine:2", "O/os/ot", "eu-north-1"},
		"no configured endpoints": {Settings{Profile: "other"}, with(files, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"),
			"https://s3.eu-north-1.amazonaws.com", "O/os/ot", "eu-north-1"},
		"Amazon by profile": {Settings{}, with(files, "AWS_PROFILE", "plain"), "https://s3.cn-north-1.amazonaws.com.cn",
			"P/ps/", "cn-north-1"},
		"Amazon": {Settings{Endpoint: Amazon, Region: "us-west-2"}, with(files),
			"https://s3.us-west-2.amazonaws.com", "D/ds/", "us-west-2"},
		"flags": {Settings{Endpoint: "https://f", AccessKey: "F", SecretKey: "fs", Region: "fr"},
			with(files, "AWS_PROFILE", "other"), "https://f", "F/fs/", "fr"},
		"a key with a secret elsewhere": {Settings{AccessKey: "F"}, with(none, "AWS_SECRET_ACCESS_KEY", "es"), LocalEndpoint,
			"F/es/", "us-east-1"},
		"Amazon without an instance": {Settings{Endpoint: Amazon}, with(none, "AWS_EC2_METADATA_DISABLED", "true"),
			"https://s3.us-east-1.amazonaws.com", "none", "us-east-1"},
	} {
		c.s.Env = c.env
		a, err := Resolve(t.Context(), c.s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := keys(t, a); a.Endpoint != c.endpoint || got != c.keys || a.Region != c.region {
			t.Errorf("%s: %s, keys %s, region %s", name, a.Endpoint, got, a.Region)
		}
	}
	a, err := Resolve(t.Context(), Settings{Profile: "other", Env: with(files)})
	if err != nil || a.CAFile != "/ca.pem" || a.From != "profile other" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestResolveRefuses(t *testing.T) {
	files := home(t, someConfig+"[profile circle]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = gone\n", someKeys)
	odd := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(odd, make([]byte, mostFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		s    Settings
		env  func(string) string
		kind errs.Kind
		want string
	}{
		"a profile that is not there": {Settings{Profile: "nope"}, with(files), errs.NotFound, "nope"},
		"AWS_PROFILE is not there":    {Settings{}, with(files, "AWS_PROFILE", "nope"), errs.NotFound, "credentials"},
		"a source is not there":       {Settings{Profile: "circle"}, with(files), errs.Invalid, "gone"},
		"no secret":                   {Settings{}, with(nil, "AWS_ACCESS_KEY_ID", "E"), errs.Invalid, "no secret key"},
		"a large file":                {Settings{}, with(nil, "AWS_CONFIG_FILE", odd), errs.Invalid, "bytes"},
		"a directory":                 {Settings{}, with(nil, "AWS_CONFIG_FILE", filepath.Dir(odd)), errs.Invalid, "mode"},
	} {
		c.s.Env = c.env
		if _, err := Resolve(t.Context(), c.s); !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A program gives keys, and its output is in no error.
func TestCredentialProcess(t *testing.T) {
	dir := t.TempDir()
	program := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const secret = "SECRET/of/the/program+which0must1not2be3told"
	good := program("good", `echo '{"Version":1,"AccessKeyId":"C","SecretAccessKey":"cs","SessionToken":"ct","Expiration":"2099-01-01T00:00:00Z"}'`)
	files := home(t, fmt.Sprintf("[profile good]\ncredential_process = %s\n[profile bad]\ncredential_process = %s\n"+
		"[profile fails]\ncredential_process = %s\n[profile old]\ncredential_process = %s\n", good,
		program("bad", "echo '{\"SecretAccessKey\": \""+secret+"\", oops'"), program("fails", "exit 3"),
		program("old", `echo '{"Version":7,"SecretAccessKey":"`+secret+`"}'`)), "")
	a, err := Resolve(t.Context(), Settings{Profile: "good", Endpoint: "http://h", Env: with(files)})
	if err != nil || keys(t, a) != "C/cs/ct" {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"bad", "fails", "old"} {
		a, err := Resolve(t.Context(), Settings{Profile: name, Endpoint: "http://h", Env: with(files)})
		if err == nil {
			_, err = a.Credentials(t.Context())
		}
		if !errs.Is(err, errs.Permission) || errs.FixOf(err) == "" || strings.Contains(err.Error(), "SECRET") ||
			!strings.Contains(err.Error(), "credential_process") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoginsSayWhatToDo(t *testing.T) {
	files := home(t, "[profile sso]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n[sso-session s]\n"+
		"sso_region = us-east-1\nsso_start_url = https://x.invalid/start\n", "")
	t.Setenv("HOME", files["HOME"]) // where the tokens of logins are kept
	a, err := Resolve(t.Context(), Settings{Profile: "sso", Endpoint: "http://h", Env: with(files)})
	if err == nil {
		_, err = a.Credentials(t.Context())
	}
	if !errs.Is(err, errs.Permission) || !strings.Contains(errs.FixOf(err), "aws sso login --profile sso") {
		t.Errorf("%v, fix %q", err, errs.FixOf(err))
	}
}

// A container's keys are renewed before they expire, and requests never carry expired ones.
func TestKeysOfAContainerAreRenewed(t *testing.T) {
	var given atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "tok" {
			t.Errorf("asked with %q", r.Header.Get("Authorization"))
		}
		n := given.Add(1)
		// The first keys expire within the time in which they are renewed.
		expires := time.Now().Add(time.Minute)
		if n > 1 {
			expires = time.Now().Add(time.Hour)
		}
		json.NewEncoder(w).Encode(map[string]string{"AccessKeyId": fmt.Sprintf("K%d", n), "SecretAccessKey": "s",
			"Token": "t", "Expiration": expires.UTC().Format(time.RFC3339)})
	}))
	t.Cleanup(s.Close)
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CA_BUNDLE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", s.URL+"/keys")
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "tok")
	a, err := Resolve(t.Context(), Settings{Endpoint: "http://h"})
	if err != nil || a.From != "the container" {
		t.Fatalf("%+v, %v", a, err)
	}
	var seen []string
	for range 3 {
		seen = append(seen, keys(t, a))
	}
	if got := strings.Join(seen, " "); got != "K1/s/t K2/s/t K2/s/t" {
		t.Errorf("%s", got)
	}
	s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a, _ = Resolve(t.Context(), Settings{Endpoint: "http://h"})
	if _, err := a.Credentials(ctx); !errs.Is(err, errs.Cancelled) {
		t.Errorf("%v", err)
	}
}

func TestClientsPerProfile(t *testing.T) {
	f := newFake(t)
	files := home(t, "[profile far]\nendpoint_url = "+f.URL+"\naws_access_key_id = a\naws_secret_access_key = b\n", "")
	c := NewClients(Settings{Endpoint: "http://127.0.0.1:1", Env: with(files, "AWS_REGION", "here", "NEBULAIO_ENDPOINT",
		"http://127.0.0.1:2")})
	defer c.Close()
	p, err := Parse("s3://far@b/k")
	if err != nil {
		t.Fatal(err)
	}
	f.objects["k"] = []byte("x")
	tree, err := c.Open(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if kind, e, err := tree.Look(t.Context()); err != nil || kind != One || e.Size != 1 {
		t.Errorf("%v, %+v, %v", kind, e, err)
	}
	for profile, want := range map[string]string{"": "http://127.0.0.1:1", "far": f.URL} {
		if a, err := c.Account(t.Context(), profile); err != nil || a.Endpoint != want {
			t.Errorf("%q: %+v, %v", profile, a, err)
		}
	}
	if _, err := c.Open(t.Context(), Place{Bucket: "b", Profile: "gone"}); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
	if local, err := c.Open(t.Context(), Place{Path: "x"}); err != nil || local.Client != nil {
		t.Errorf("%+v, %v", local, err)
	}
}

var _ lister = (*s3.Client)(nil)

// TestTheNullDeviceHasNoProfiles checks that /dev/null, the usual way to name no file, is one without profiles.
func TestTheNullDeviceHasNoProfiles(t *testing.T) {
	t.Parallel()
	env := with(nil, "AWS_CONFIG_FILE", os.DevNull, "AWS_SHARED_CREDENTIALS_FILE", os.DevNull,
		"AWS_ACCESS_KEY_ID", "a", "AWS_SECRET_ACCESS_KEY", "b")
	a, err := Resolve(t.Context(), Settings{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if got := keys(t, a); got != "a/b/" {
		t.Errorf("the keys are %s", got)
	}
}
