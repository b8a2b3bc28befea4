// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"testing"
)

// TestVector is the example of Alibaba's documentation of the signature.
func TestVector(t *testing.T) {
	query := url.Values{"ImageId": {"win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd"}, "RegionId": {"cn-shanghai"}}
	nothing := sha256.Sum256(nil)
	r := &http.Request{
		Method: http.MethodPost, Host: "ecs.cn-shanghai.aliyuncs.com", URL: &url.URL{Path: "/", RawQuery: query.Encode()},
		Header: http.Header{
			"X-Acs-Action": {"RunInstances"}, "X-Acs-Version": {"2014-05-26"}, "X-Acs-Date": {"2023-10-26T10:22:32Z"},
			"X-Acs-Signature-Nonce": {"3156853299f313e23d1673dc12e1703d"}, "X-Acs-Content-Sha256": {hex.EncodeToString(nothing[:])},
		},
	}
	signed := []string{"host", "x-acs-action", "x-acs-content-sha256", "x-acs-date", "x-acs-signature-nonce", "x-acs-version"}
	hash := sha256.Sum256([]byte(canonical(r, nil, signed)))
	if got := hex.EncodeToString(hash[:]); got != "7ea06492da5221eba5297e897ce16e55f964061054b7695beedaac1145b1e259" {
		t.Errorf("the canonical request has the hash %s", got)
	}
	if got := sign(r, nil, signed, "YourAccessKeySecret"); got != "06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0" {
		t.Errorf("the signature is %s", got)
	}
}

func TestEscape(t *testing.T) {
	if got := escape("a b*~/+é"); got != "a%20b%2A~%2F%2B%C3%A9" {
		t.Errorf("escape: %s", got)
	}
}
