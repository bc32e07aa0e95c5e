// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	// fetchTime is the time in which an issuer has to give its keys.
	fetchTime = 10 * time.Second
	// maxDocument is the largest document of an issuer in bytes.
	maxDocument = 1 << 20
	// discovery is the path of the description of an issuer, below its URL.
	discovery = "/.well-known/openid-configuration"
)

// CheckURL returns what is wrong with the URL of an issuer, or "". Plain HTTP is accepted on this machine alone:
// anybody on the way could replace the keys, and so make tokens.
func CheckURL(text string) string {
	const expected = "expected https://HOST/PATH, or http:// with a loopback address"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return "is no URL of an issuer; " + expected
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "has a user name, a query or a fragment; " + expected
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return "uses plain HTTP to another machine; " + expected
	}
	return ""
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// NewClient returns an HTTP client for issuers. The file caFile holds additional certificate authorities; an empty
// caFile means none. The client follows redirects only to URLs that CheckURL accepts.
func NewClient(caFile string) (*http.Client, error) {
	const op = "read the certificate authorities"
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		text, err := os.ReadFile(caFile)
		if err != nil {
			return nil, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: caFile, Err: errs.WithoutPath(err)}
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool() // a system without authorities
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, errs.New(errs.Invalid, op, caFile, "has no certificate; expected PEM blocks CERTIFICATE")
		}
		conf.RootCAs = pool
	}
	return &http.Client{
		Timeout: fetchTime,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, ForceAttemptHTTP2: true,
			MaxIdleConns: 4, IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: fetchTime,
			ResponseHeaderTimeout: fetchTime, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 {
				return errors.New("there are more than 3 redirects")
			}
			if why := checkDocument(r.URL.String()); why != "" {
				return errors.New("the redirect to " + strconv.Quote(r.URL.String()) + " " + why)
			}
			return nil
		},
	}, nil
}

// checkDocument returns what is wrong with the URL of a document of an issuer, or "". Unlike the URL of an issuer, it
// may have a query.
func checkDocument(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "is no URL"
	}
	u.RawQuery = ""
	return CheckURL(u.String())
}

// fetcher reads the description and the keys of an issuer.
type fetcher struct {
	client *http.Client
	issuer string
}

// keys fetches the keys of the issuer, and the time for which they may be kept. The time is 0 if the issuer names none.
func (f *fetcher) keys(ctx context.Context) ([]jose.JSONWebKey, time.Duration, error) {
	text, _, err := f.get(ctx, strings.TrimSuffix(f.issuer, "/")+discovery)
	if err != nil {
		return nil, 0, err
	}
	var about struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &about); err != nil {
		return nil, 0, fail(ErrUnreachable, "the description of %s is no JSON: %v", f.issuer, err)
	}
	if about.Issuer != f.issuer {
		return nil, 0, fail(ErrUnreachable, "%s describes the issuer %.128q; expected the same URL", f.issuer, about.Issuer)
	}
	if why := checkDocument(about.Keys); why != "" {
		return nil, 0, fail(ErrUnreachable, "the field jwks_uri of %s is %.128q, which %s", f.issuer, about.Keys, why)
	}
	text, age, err := f.get(ctx, about.Keys)
	if err != nil {
		return nil, 0, err
	}
	keys, err := parseKeys(text)
	return keys, age, err
}

// get reads a document.
func (f *fetcher) get(ctx context.Context, at string) ([]byte, time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, 0, fail(ErrUnreachable, "%v", err)
	}
	r.Header.Set("Accept", "application/json")
	resp, err := f.client.Do(r)
	if err != nil {
		return nil, 0, fail(ErrUnreachable, "%v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, 0, fail(ErrUnreachable, "%s answers with status %d; expected 200", at, resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = fmt.Errorf("it has more than %d bytes", maxDocument)
	}
	if err != nil {
		return nil, 0, fail(ErrUnreachable, "reading %s failed: %v", at, err)
	}
	return text, maxAgeOf(resp.Header.Get("Cache-Control")), nil
}

// maxAgeOf returns the time in a Cache-Control header, or 0.
func maxAgeOf(header string) time.Duration {
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if !strings.EqualFold(name, "max-age") {
			continue
		}
		if n, err := strconv.Atoi(strings.Trim(value, `"`)); err == nil && n > 0 && n <= 365*24*3600 {
			return time.Duration(n) * time.Second
		}
	}
	return 0
}
