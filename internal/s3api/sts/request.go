// SPDX-License-Identifier: Apache-2.0

// Package sts reads requests to the Security Token Service of AWS, and writes its replies. Package sts does no I/O.
package sts

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Service is the service for which clients sign requests for temporary keys.
const Service = "sts"

// The actions that this server knows.
const (
	AssumeRole                = "AssumeRole"
	AssumeRoleWithWebIdentity = "AssumeRoleWithWebIdentity"
	GetCallerIdentity         = "GetCallerIdentity"
)

const (
	version = "2011-06-15"
	// MaxBody is the largest request body in bytes.
	MaxBody = 64 << 10
	// MinDuration is the shortest validity of temporary keys, and DefaultDuration the validity without a wish, as in AWS.
	MinDuration     = 15 * time.Minute
	DefaultDuration = time.Hour
	maxPolicy       = 2048 // characters of a session policy, as in AWS
	maxPolicyNames  = 10
	maxARN          = 2048
)

// Request is a request to the Security Token Service.
type Request struct {
	Action      string
	Role        string // last part of RoleArn; empty if the client gave none
	SessionName string
	Token       string        // WebIdentityToken
	Duration    time.Duration // 0 if the client gave none
	Policy      string        // session policy; empty if the client gave none
	// PolicyNames are the names of policies that narrow the session as Policy does.
	PolicyNames []string
}

// Refusal is the error with which a request is refused.
type Refusal struct {
	Status  int // HTTP status
	Code    string
	Message string
}

// Error returns the code and the message.
func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

// Refuse returns a Refusal. The rest of the arguments are formatted as by fmt.Sprintf.
func Refuse(status int, code, format string, args ...any) *Refusal {
	return &Refusal{status, code, fmt.Sprintf(format, args...)}
}

func badValue(format string, args ...any) *Refusal {
	return Refuse(http.StatusBadRequest, "ValidationError", format, args...)
}

// unsupported are parameters with a meaning that this server does not have. They are refused, because a client that
// gets keys would believe that they have an effect.
var unsupported = []string{"SerialNumber", "TokenCode", "SourceIdentity", "Tags.member.1.Key",
	"TransitiveTagKeys.member.1", "ProvidedContexts.member.1.ProviderArn", "ProviderId"}

// Parse reads the body of a request, which is a form. The error is a *Refusal.
func Parse(body []byte) (*Request, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, "MalformedQueryString", "The body is no form: %v.", err)
	}
	for name, values := range form {
		if len(values) > 1 {
			return nil, badValue("The parameter %.64q is given %d times; expected once.", name, len(values))
		}
	}
	r := &Request{Action: form.Get("Action"), SessionName: form.Get("RoleSessionName"),
		Token: form.Get("WebIdentityToken"), Policy: form.Get("Policy")}
	if v := form.Get("Version"); r.Action != "" && v != "" && v != version {
		return nil, Refuse(http.StatusBadRequest, "InvalidAction", "Could not find operation %.64q for version %.32q.",
			r.Action, v)
	}
	switch r.Action {
	case "":
		return nil, Refuse(http.StatusBadRequest, "MissingAction", "The request has no parameter Action.")
	case GetCallerIdentity:
		return r, nil
	case AssumeRole, AssumeRoleWithWebIdentity:
	default:
		return nil, Refuse(http.StatusBadRequest, "InvalidAction",
			"This server has no operation %.64q; expected %s, %s or %s.",
			r.Action, AssumeRole, AssumeRoleWithWebIdentity, GetCallerIdentity)
	}
	for _, name := range unsupported {
		if form.Get(name) != "" {
			return nil, badValue("The parameter %s is not supported.", name)
		}
	}
	if r.Action == AssumeRoleWithWebIdentity && r.Token == "" {
		return nil, badValue("The parameter WebIdentityToken is missing.")
	}
	return r, r.read(form)
}

// read reads the parameters of both actions that give keys.
func (r *Request) read(form url.Values) error {
	if arn := form.Get("RoleArn"); arn != "" {
		parts := strings.SplitN(arn, ":", 6)
		if len(parts) != 6 || parts[0] != "arn" || len(arn) > maxARN || !isWord(lastOf(parts[5]), "+=,.@_-") {
			return badValue("The parameter RoleArn is %.128q; expected a form such as arn:aws:iam::000000000000:role/NAME.", arn)
		}
		r.Role = lastOf(parts[5])
	}
	if n := r.SessionName; n != "" && (len(n) < 2 || len(n) > 64 || !isWord(n, "+=,.@_-")) {
		return badValue("The parameter RoleSessionName is %.80q; expected 2 to 64 letters, digits and +=,.@_-.", n)
	}
	if n := len(r.Policy); n > maxPolicy {
		return badValue("The parameter Policy has %d characters; expected %d at most.", n, maxPolicy)
	}
	if text := form.Get("DurationSeconds"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < int(MinDuration/time.Second) || n > 365*24*3600 {
			return badValue("The parameter DurationSeconds is %.32q; expected a number from %d on.", text,
				int(MinDuration/time.Second))
		}
		r.Duration = time.Duration(n) * time.Second
	}
	for i := 1; ; i++ {
		name := fmt.Sprintf("PolicyArns.member.%d.arn", i)
		arn := form.Get(name)
		if arn == "" {
			break
		}
		_, policy, ok := strings.Cut(arn, ":policy/")
		if !ok || !strings.HasPrefix(arn, "arn:") || len(arn) > maxARN || policy == "" {
			return badValue("The parameter %s is %.128q; expected a form such as arn:aws:iam::000000000000:policy/NAME.", name,
				arn)
		}
		if i > maxPolicyNames {
			return badValue("There are more than %d PolicyArns.", maxPolicyNames)
		}
		r.PolicyNames = append(r.PolicyNames, lastOf(policy))
	}
	return nil
}

// lastOf returns what follows the last slash.
func lastOf(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// isWord reports whether a text has only letters, digits and the signs.
func isWord(s, signs string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(signs, c) >= 0) {
			return false
		}
	}
	return s != ""
}
