// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/plain"
)

// renewBefore is how long before their expiry temporary keys are renewed.
const renewBefore = 5 * time.Minute

// explain returns the error of a source of keys, with a fix and without a secret.
func (r *resolver) explain(from string, err error) error {
	text, fix := "", ""
	var process *processcreds.ProviderError
	switch {
	case errors.As(err, &process):
		// The SDK's text repeats the output of the program, which holds the keys.
		text = "its credential_process failed"
		if cause := process.Err; cause != nil {
			if msg := cause.Error(); strings.HasPrefix(msg, "parse failed of process output") {
				text = "the output of its credential_process is not the JSON that AWS defines"
			} else {
				text += ": " + redact(msg)
			}
		}
		fix = "run the program of credential_process by hand and look at what it prints"
	case r.usesSSO():
		text = "the login of this profile has no valid token: " + redact(err.Error())
		fix = "log in again: aws sso login --profile " + r.profile
	case r.shared.LoginSession != "":
		text = "the login of this profile has ended: " + redact(err.Error())
		fix = "log in again: aws login --profile " + r.profile
	case r.shared.MFASerial != "" && strings.Contains(err.Error(), "MFA"):
		text = "the role needs a code of a device (MFA), which this command cannot ask for"
		fix = "get temporary keys with aws sts assume-role, and set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and " +
			"AWS_SESSION_TOKEN"
	case from == "the instance":
		text = "this machine gives no keys for Amazon: " + redact(err.Error())
		fix = "give keys: aws configure, AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
	default:
		text = redact(err.Error())
		fix = "check " + from
	}
	return errs.New(errs.Permission, "get keys from", from, text).WithFix(fix)
}

func (r *resolver) usesSSO() bool {
	for c := &r.shared; c != nil; c = c.Source {
		if c.SSOSessionName != "" || c.SSOStartURL != "" {
			return true
		}
	}
	return false
}

// redact shortens a text of the SDK and hides what looks like a key: a long run of the characters of base64.
func redact(s string) string {
	s = longRun.ReplaceAllString(plain.Text(s), "…")
	if len(s) > 500 {
		s = s[:500] + "…"
	}
	return s
}

var longRun = regexp.MustCompile(`[A-Za-z0-9+=]{32,}|[A-Za-z0-9/+=]{60,}`)
