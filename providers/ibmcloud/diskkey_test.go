// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider/config"
)

// TestDiskKey: the boot volume's key is wrapped with the one that is configured.
func TestDiskKey(t *testing.T) {
	for _, key := range []string{"", "crn:v1:bluemix:public:kms:us-south:a/1:2:key:3"} {
		p := &Provider{cfg: config.Defaults[Config]()}
		p.cfg.DiskKey, p.cfg.Subnets = key, []string{"s-1"}
		data, err := json.Marshal(p.prototype(&request{}, candidate{}))
		if err != nil || strings.Contains(string(data), `"encryption_key":{"crn":"`+key+`"}`) != (key != "") {
			t.Errorf("key %q: %v %s", key, err, data)
		}
	}
}
