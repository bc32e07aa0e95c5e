// SPDX-License-Identifier: Apache-2.0

package player

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/versity/versitygw/auth"
)

// admin is the part of versitygw's command line that its suite calls:
//
//	admin -a KEY -s SECRET -er URL create-user|delete-user|change-bucket-owner|list-buckets FLAGS
func admin(args []string) error {
	if len(args) < 8 || args[0] != "admin" {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	global := flags(args[1:7])
	command, local := args[7], flags(args[8:])
	q := url.Values{}
	var body []byte
	var err error
	switch command {
	case "create-user":
		body, err = xml.Marshal(auth.Account{Access: local["-a"], Secret: local["-s"], Role: auth.Role(local["-r"])})
	case "delete-user":
		q.Set("access", local["-a"])
	case "change-bucket-owner":
		q.Set("bucket", local["-b"])
		q.Set("owner", local["-o"])
	case "list-buckets":
	default:
		err = fmt.Errorf("unexpected command %q", command)
	}
	if err != nil {
		return err
	}
	return call(global["-a"], global["-s"], global["-er"]+"/"+command+"?"+q.Encode(), body)
}

func flags(args []string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		m[args[i]] = args[i+1]
	}
	return m
}

func call(key, secret, target string, body []byte) error {
	req, err := http.NewRequest(http.MethodPatch, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	creds := aws.Credentials{AccessKeyID: key, SecretAccessKey: secret}
	if err := v4.NewSigner().SignHTTP(context.Background(), creds, req, hash, "s3", Region, time.Now()); err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 400 {
		return errors.New(string(text))
	}
	fmt.Printf("%s\n", text)
	return nil
}
