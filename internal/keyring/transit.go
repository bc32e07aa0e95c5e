// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Transit holds the settings of a master key in the transit engine of HashiCorp Vault or OpenBao. The master key never
// leaves that server.
type Transit struct {
	Address   string // URL of the server, such as https://vault.example:8200
	Mount     string // path of the transit engine; empty means "transit"
	Key       string // name of the key in the transit engine
	TokenFile string // file with the token, which is read again if the server refuses the token
	CAFile    string // PEM file with the certificates of authorities; empty means those of the system
}

// transitPrefix begins a key that the transit engine has wrapped.
const transitPrefix = "vault:v"

const (
	transitTime = 10 * time.Second // longest time of one request
	maxReply    = 1 << 20          // largest reply in bytes
	maxToken    = 16 << 10         // largest token in bytes
)

// transit is a Master in the transit engine.
type transit struct {
	o    Transit
	http *http.Client
}

// NewTransit returns a Master that asks the transit engine. NewTransit reads the files that o names and sends no
// request.
func NewTransit(o Transit) (Master, error) {
	const op = "use the key service"
	u, err := url.Parse(o.Address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errs.New(errs.Invalid, op, o.Address, "expected a URL such as https://vault.example:8200")
	}
	if o.Mount == "" {
		o.Mount = "transit"
	}
	o.Address, o.Mount = strings.TrimSuffix(o.Address, "/"), strings.Trim(o.Mount, "/")
	t := &transit{o: o}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: o.CAFile, Err: errs.WithoutPath(err)}
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errs.New(errs.Invalid, op, o.CAFile, "has no certificate, expected PEM")
		}
	}
	t.http = &http.Client{Timeout: transitTime, Transport: &http.Transport{TLSClientConfig: conf, MaxIdleConns: 2,
		IdleConnTimeout: time.Minute, Proxy: http.ProxyFromEnvironment}}
	_, err = t.token()
	return t, err
}

// token reads the token, which an agent may replace at any time.
func (t *transit) token() (string, error) {
	const op = "read the token of the key service"
	raw, err := os.ReadFile(t.o.TokenFile)
	if err != nil {
		return "", &errs.Error{Kind: errs.KindOf(err), Op: op, Name: t.o.TokenFile, Err: errs.WithoutPath(err)}
	}
	token := strings.TrimSpace(string(raw))
	if token == "" || len(token) > maxToken || strings.ContainsAny(token, "\r\n\x00") {
		return "", errs.New(errs.Invalid, op, t.o.TokenFile,
			fmt.Sprintf("has %d bytes, expected one line with a token", len(raw)))
	}
	return token, nil
}

// call sends a request to the transit engine. The reply goes into the field data of into.
func (t *transit) call(ctx context.Context, method, path string, body, into any) error {
	const op = "ask the key service"
	name := t.o.Address + "/v1/" + t.o.Mount + "/" + path
	token, err := t.token()
	if err != nil {
		return err
	}
	var src io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return errs.Wrap(op, name, err)
		}
		src = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, name, src)
	if err != nil {
		return errs.Wrap(op, name, err)
	}
	req.Header.Set("X-Vault-Token", token)
	req.Header.Set("X-Vault-Request", "true")
	resp, err := t.http.Do(req)
	if err != nil {
		return &errs.Error{Kind: errs.IO, Op: op, Name: name, Err: fmt.Errorf("%w: %w", object.ErrKeyService, cause(err)),
			Fix: "see whether the server at encryption.vault.address runs"}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return &errs.Error{Kind: errs.IO, Op: op, Name: name, Err: fmt.Errorf("%w: %w", object.ErrKeyService, err)}
	}
	if resp.StatusCode != http.StatusOK {
		return t.refused(op, name, resp.StatusCode, raw)
	}
	var reply struct {
		Data json.RawMessage `json:"data"`
	}
	err = json.Unmarshal(raw, &reply)
	if err == nil {
		err = json.Unmarshal(reply.Data, into)
	}
	if err != nil {
		return errs.New(errs.Corrupt, op, name, "the reply is no JSON of the transit engine: "+err.Error())
	}
	return nil
}

// refused returns the error of a reply with another status than 200.
func (t *transit) refused(op, name string, status int, raw []byte) error {
	var reply struct {
		Errors []string `json:"errors"`
	}
	_ = json.Unmarshal(raw, &reply) // without errors, the status says enough
	text := fmt.Sprintf("status %d", status)
	if len(reply.Errors) > 0 {
		text += fmt.Sprintf(": %.500s", strings.Join(reply.Errors, "; "))
	}
	switch {
	case status == http.StatusForbidden:
		return errs.New(errs.Permission, op, name,
			text).WithFix("give the token of encryption.vault.token_file the rights to " + "encrypt, decrypt and read the key")
	case status == http.StatusNotFound, status == http.StatusBadRequest:
		return errs.New(errs.Invalid, op, name, text).WithFix(
			"see whether encryption.vault.mount and encryption.vault.key are right")
	}
	return &errs.Error{Kind: errs.IO, Op: op, Name: name, Err: fmt.Errorf("%w: %s", object.ErrKeyService, text),
		Fix: "see whether the key service is sealed or overloaded"}
}

// cause returns a network error without its address, which the caller names.
func cause(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// bound is associated data, as the transit engine expects it.
func bound(name string) string { return base64.StdEncoding.EncodeToString([]byte("nebulaio " + name)) }

// Wrap implements Master.
func (t *transit) Wrap(ctx context.Context, key []byte, name string) (string, error) {
	var out struct {
		Ciphertext string `json:"ciphertext"`
	}
	err := t.call(ctx, http.MethodPost, "encrypt/"+url.PathEscape(t.o.Key), map[string]string{
		"plaintext": base64.StdEncoding.EncodeToString(key), "associated_data": bound(name)}, &out)
	if err == nil && !strings.HasPrefix(out.Ciphertext, transitPrefix) {
		err = errs.New(errs.Corrupt, "ask the key service", t.o.Address,
			fmt.Sprintf("the ciphertext begins with %.16q, expected %q", out.Ciphertext, transitPrefix))
	}
	return out.Ciphertext, err
}

// Unwrap implements Master.
func (t *transit) Unwrap(ctx context.Context, wrapped, name string) ([]byte, error) {
	if !strings.HasPrefix(wrapped, transitPrefix) {
		return nil, errs.New(errs.Permission, "unwrap encryption key", name, "a master key in a file has wrapped it").
			WithFix("set encryption.key_file to the master key that the store was used with")
	}
	var out struct {
		Plaintext string `json:"plaintext"`
	}
	if err := t.call(ctx, http.MethodPost, "decrypt/"+url.PathEscape(t.o.Key), map[string]string{
		"ciphertext": wrapped, "associated_data": bound(name)}, &out); err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(out.Plaintext)
	if err != nil {
		return nil, errs.New(errs.Corrupt, "ask the key service", t.o.Address, "the plaintext is no base64")
	}
	return key, nil
}

// Current implements Master. The text of a wrapped key names the version of the key that has wrapped it.
func (t *transit) Current(ctx context.Context, wrapped string) (bool, error) {
	var out struct {
		Latest int `json:"latest_version"`
	}
	if err := t.call(ctx, http.MethodGet, "keys/"+url.PathEscape(t.o.Key), nil, &out); err != nil {
		return false, err
	}
	return strings.HasPrefix(wrapped, transitPrefix+strconv.Itoa(out.Latest)+":"), nil
}

// String implements Master.
func (t *transit) String() string { return t.o.Address + "/v1/" + t.o.Mount + "/keys/" + t.o.Key }
