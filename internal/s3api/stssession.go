// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/s3api/express"
	"github.com/nebulaio/nebulaio/internal/s3api/sts"
)

// securityToken is the header with the session token of temporary keys.
const securityToken = "X-Amz-Security-Token"

// begin begins the session of an account that has its parent and its policies.
func (t *tokenService) begin(ctx context.Context, r *sts.Request, a iam.Account) (sts.Session, error) {
	lasts := r.Duration
	switch {
	case lasts == 0:
		lasts = min(sts.DefaultDuration, t.o.MaxDuration)
	case lasts > t.o.MaxDuration:
		return sts.Session{}, sts.Refuse(http.StatusBadRequest, "ValidationError",
			"The parameter DurationSeconds is %d; expected %d at most (sts.max_duration).", int(lasts/time.Second),
			int(t.o.MaxDuration/time.Second))
	}
	if r.SessionName == "" {
		r.SessionName = "session"
	}
	var err error
	if a.SessionPolicy, err = t.sessionPolicy(r); err != nil {
		return sts.Session{}, err
	}
	a.Expires = t.s.opts.Accounts.Now().Add(lasts).Truncate(time.Second)
	a.Description = r.Role + "/" + r.SessionName
	made, err := t.s.opts.Accounts.Sessions().Begin(ctx, a, t.o.MaxSessions)
	switch {
	case errors.Is(err, iam.ErrTooManySessions):
		return sts.Session{}, sts.Refuse(http.StatusServiceUnavailable, "Throttling", "%s.", errs.MessageOf(err))
	case errs.Is(err, errs.Invalid):
		return sts.Session{}, sts.Refuse(http.StatusBadRequest, "ValidationError", "%s.", errs.MessageOf(err))
	case err != nil:
		return sts.Session{}, err
	}
	return sts.Session{Credentials: sts.Credentials{AccessKey: made.AccessKey, SecretKey: made.Secret, Token: made.Token,
		Expires: made.Expires}, Role: r.Role, Name: r.SessionName, Packed: 100 * len(a.SessionPolicy) / document.MaxSize}, nil
}

// sessionPolicy returns the policy that limits a session: the statements of the policy in the request and of the
// policies that it names. The statements of named policies are those of now.
func (t *tokenService) sessionPolicy(r *sts.Request) (string, error) {
	var texts []string
	if r.Policy != "" {
		texts = append(texts, r.Policy)
	}
	for _, name := range r.PolicyNames {
		p, err := t.s.opts.Accounts.Policy(name)
		if err != nil {
			return "", sts.Refuse(http.StatusBadRequest, "ValidationError", "This server has no policy %.128q.", name)
		}
		texts = append(texts, p.Text)
	}
	for _, text := range texts {
		if _, err := document.Parse([]byte(text)); err != nil {
			return "", sts.Refuse(http.StatusBadRequest, "MalformedPolicyDocument", "%s.", errs.MessageOf(err))
		}
	}
	switch len(texts) {
	case 0:
		return "", nil
	case 1:
		return texts[0], nil
	}
	joined, err := joinPolicies(texts)
	if err != nil {
		return "", sts.Refuse(http.StatusBadRequest, "MalformedPolicyDocument", "%v.", err)
	}
	if len(joined) > document.MaxSize {
		return "", sts.Refuse(http.StatusBadRequest, "PackedPolicyTooLarge",
			"The session policies have %d bytes together; expected %d at most.", len(joined), document.MaxSize)
	}
	return string(joined), nil
}

// joinPolicies returns a policy with the statements of all policies.
func joinPolicies(texts []string) ([]byte, error) {
	all := []json.RawMessage{}
	for _, text := range texts {
		var p struct{ Statement json.RawMessage }
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return nil, err
		}
		var many []json.RawMessage
		if json.Unmarshal(p.Statement, &many) != nil {
			many = []json.RawMessage{p.Statement} // one statement without a list
		}
		all = append(all, many...)
	}
	return json.Marshal(struct {
		Version   string
		Statement []json.RawMessage
	}{"2012-10-17", all})
}

var _ auth.SigningKeyProvider = accounts{}

// DeriveSigningKey returns the key that verifies the signatures of an access key, and the account. The token has to be
// the session token of the access key.
func (a accounts) DeriveSigningKey(access, token, date, region, service string) ([]byte, auth.Account, error) {
	account, err := authentic(a.svc, access, token)
	if err != nil {
		return nil, auth.Account{}, err
	}
	return express.DeriveKey(account.Secret, date, region, service), toAuth(account), nil
}

// authentic returns the account with an access key and a session token. The error is one that versitygw knows. As in
// S3, temporary keys without their token are unknown.
func authentic(svc *iam.Service, access, token string) (iam.Account, error) {
	account, err := svc.Authentic(access, token)
	switch {
	case err == nil:
		return account, nil
	case errors.Is(err, iam.ErrExpired) && token != "":
		return account, refusal(http.StatusBadRequest, "ExpiredToken", "The provided token has expired.")
	case errors.Is(err, iam.ErrWrongToken) && token != "":
		return account, auth.ErrInvalidSessionToken
	case errors.Is(err, iam.ErrWrongToken), errors.Is(err, iam.ErrNoSuchAccount):
		return account, auth.ErrNoSuchUser
	}
	return account, err
}

// holder returns the account that claims to have signed a request with the given token.
func (a accounts) holder(access, token string) (iam.Account, s3err.S3Error) {
	account, err := authentic(a.svc, access, token)
	var known s3err.S3Error
	switch {
	case err == nil:
		return account, nil
	case errors.Is(err, auth.ErrInvalidSessionToken):
		return account, s3err.GetAPIError(s3err.ErrInvalidToken)
	case errors.As(err, &known):
		return account, known
	}
	return account, s3err.GetInvalidAccessKeyIdErr(access)
}
