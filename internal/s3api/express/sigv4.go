// SPDX-License-Identifier: Apache-2.0

// Package express verifies the requests for directory buckets: sessions, signatures and signed payloads. Package
// express does no I/O except for reading the payloads.
package express

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Service is the service for which clients sign requests for directory buckets. Clients that know no directory buckets
// sign for the service "s3".
const Service = "s3express"

// TokenHeader is the header that holds the token of a session, in lower case.
const TokenHeader = "x-amz-s3session-token"

const (
	algorithm = "AWS4-HMAC-SHA256"
	// DateFormat is the format of the date of a signature.
	DateFormat = "20060102T150405Z"
	// MaxSkew is the largest difference between a client's clock and ours.
	MaxSkew = 15 * time.Minute
	// maxExpiry is the longest time for which a presigned URL is valid.
	maxExpiry = 7 * 24 * time.Hour
)

// Refusal is the S3 error with which a request is refused.
type Refusal struct {
	Status  int // HTTP status
	Code    string
	Message string
}

// Error returns the code and the message.
func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

func refuse(status int, code, message string) error { return &Refusal{status, code, message} }

// malformed refuses an Authorization header, or the arguments of a presigned URL.
func malformed(presigned bool, message string) error {
	if presigned {
		return refuse(http.StatusBadRequest, "AuthorizationQueryParametersError", message)
	}
	return refuse(http.StatusBadRequest, "AuthorizationHeaderMalformed", message)
}

// Signature is the signature of a request, as the client sent it.
type Signature struct {
	Access, Day, Region, Service string
	Signed                       []string // names of the signed headers in lower case, in order
	Value                        string   // hex digits
	Date                         string   // in the format DateFormat
	Token                        string   // token of the session; empty for a request that is signed by an account
	Presigned                    bool
	Expires                      time.Duration // of a presigned URL, from its date on
}

// Scope returns the text that names the day, the region and the service of a signature.
func (s *Signature) Scope() string { return s.Day + "/" + s.Region + "/" + s.Service + "/aws4_request" }

// ServiceOf returns the service for which a request is signed, by its Authorization header or its argument
// X-Amz-Credential. ServiceOf returns "" if neither names a service.
func ServiceOf(authorization, credential string) string {
	if credential == "" {
		_, rest, ok := strings.Cut(authorization, "Credential=")
		if !ok || !strings.HasPrefix(authorization, algorithm) {
			return ""
		}
		credential, _, _ = strings.Cut(rest, ",")
	}
	parts := strings.Split(strings.TrimSpace(credential), "/")
	if len(parts) < 5 {
		return ""
	}
	return parts[len(parts)-2]
}

// ParseHeader parses an Authorization header.
func ParseHeader(authorization, date, token string) (*Signature, error) {
	s := &Signature{Date: date, Token: token}
	rest, ok := strings.CutPrefix(authorization, algorithm+" ")
	if !ok {
		return nil, refuse(http.StatusBadRequest, "InvalidRequest",
			"The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.")
	}
	credential, signed := "", ""
	for field := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		at := map[string]*string{"Credential": &credential, "SignedHeaders": &signed, "Signature": &s.Value}[name]
		if at == nil || *at != "" {
			return nil, malformed(false, "The authorization header is malformed; expected Credential, SignedHeaders and "+
				"Signature, each once.")
		}
		*at = value
	}
	if date == "" {
		return nil, refuse(http.StatusForbidden, "AccessDenied",
			"AWS authentication requires a valid Date or x-amz-date header")
	}
	return s, s.complete(credential, signed)
}

// ParseQuery parses the arguments of a presigned URL. The function arg returns the value of an argument.
func ParseQuery(arg func(name string) string) (*Signature, error) {
	s := &Signature{Presigned: true, Date: arg("X-Amz-Date"), Value: arg("X-Amz-Signature"),
		Token: arg("X-Amz-S3session-Token")}
	if arg("X-Amz-Algorithm") != algorithm {
		return nil, malformed(true, "X-Amz-Algorithm only supports \""+algorithm+"\"")
	}
	n, err := strconv.ParseInt(arg("X-Amz-Expires"), 10, 64)
	switch {
	case err != nil:
		return nil, malformed(true, "X-Amz-Expires should be a number")
	case n < 0:
		return nil, malformed(true, "X-Amz-Expires must be non-negative")
	case n > int64(maxExpiry/time.Second):
		return nil, malformed(true, "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires "+
			"must be less than 604800 seconds")
	}
	s.Expires = time.Duration(n) * time.Second
	return s, s.complete(arg("X-Amz-Credential"), arg("X-Amz-SignedHeaders"))
}

// complete parses the credential and the names of the signed headers.
func (s *Signature) complete(credential, signed string) error {
	parts := strings.Split(credential, "/")
	n := len(parts)
	if n < 5 || parts[n-1] != "aws4_request" {
		return malformed(s.Presigned,
			"The credential is malformed; expected \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".")
	}
	s.Access = strings.Join(parts[:n-4], "/")
	s.Day, s.Region, s.Service = parts[n-4], parts[n-3], parts[n-2]
	s.Signed = strings.Split(signed, ";")
	raw, err := hex.DecodeString(s.Value)
	switch {
	case err != nil || len(raw) != sha256.Size:
		return malformed(s.Presigned, "The signature is malformed; expected 64 hexadecimal digits.")
	case len(s.Date) != len(DateFormat) || !strings.HasPrefix(s.Date, s.Day):
		return malformed(s.Presigned, "The date of the credential is not the date of the request.")
	case !slices.IsSorted(s.Signed) || !slices.Contains(s.Signed, "host"):
		return refuse(http.StatusForbidden, "AccessDenied", "The signed headers have to contain host, and be in order.")
	case s.Token != "" && !s.Presigned && !slices.Contains(s.Signed, TokenHeader):
		return refuse(http.StatusForbidden, "AccessDenied", "The header "+TokenHeader+" has to be signed.")
	}
	return nil
}

// CheckTime returns an error if the date of a signature is too far from the time now, or if a presigned URL has
// expired.
func (s *Signature) CheckTime(now time.Time) error {
	at, err := time.Parse(DateFormat, s.Date)
	switch {
	case err != nil:
		return malformed(s.Presigned, "The date of the signature must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
	case s.Presigned && at.Sub(now) > MaxSkew:
		return refuse(http.StatusForbidden, "AccessDenied", "Request is not valid yet")
	case s.Presigned && now.Sub(at) > s.Expires:
		return refuse(http.StatusForbidden, "AccessDenied", "Request has expired")
	case !s.Presigned && (now.Sub(at) > MaxSkew || at.Sub(now) > MaxSkew):
		return refuse(http.StatusForbidden, "RequestTimeTooSkewed",
			"The difference between the request time and the current time is too large.")
	}
	return nil
}

// DeriveKey returns the key with which a secret signs on a day, for a region and a service.
func DeriveKey(secret, day, region, service string) []byte {
	key := []byte("AWS4" + secret)
	for _, part := range [...]string{day, region, service, "aws4_request"} {
		key = sign(key, part)
	}
	return key
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
