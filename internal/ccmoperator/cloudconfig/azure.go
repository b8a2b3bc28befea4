// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/internal/ccmoperator/openshift"
)

const azurePublicCloud = "AzurePublicCloud"

var azureClouds = []string{azurePublicCloud, "AzureUSGovernmentCloud", "AzureChinaCloud", "AzureGermanCloud", openshift.AzureStackCloud}

// azureCloud is the name of the cluster's cloud.
func azureCloud(s *openshift.PlatformStatus) string {
	if s.Azure == nil || s.Azure.CloudName == "" {
		return azurePublicCloud
	}
	return s.Azure.CloudName
}

func transformAzure(source string, c Cluster) (string, error) {
	status := c.platform()
	cloud := azureCloud(&status)
	if status.Type != openshift.Azure || cloud == openshift.AzureStackCloud {
		return "", fmt.Errorf("invalid platform, expected CloudName to be %s", azurePublicCloud)
	}
	config, err := readJSON(source)
	if err != nil {
		return "", err
	}
	if !slices.Contains(azureClouds, cloud) {
		return "", field.NotSupported(field.NewPath("status", "platformStatus", "azure", "cloudName"), cloud, azureClouds)
	}
	given, err := config.text("cloud")
	if err != nil {
		return "", err
	}
	if given != "" && !strings.EqualFold(given, cloud) {
		return "", fmt.Errorf(`invalid user-provided cloud.conf: "cloud" field in user-provided cloud.conf conflicts with infrastructure object: it is %q, and that says %q`, given, cloud)
	}
	config["cloud"] = cloud
	if err := config.setDefault("vmType", "standard"); err != nil {
		return "", err
	}
	if _, err := config.text("clusterServiceLoadBalancerHealthProbeMode"); err != nil {
		return "", err
	}
	config["clusterServiceLoadBalancerHealthProbeMode"] = "shared"
	return config.write()
}

func transformAzureStackHub(source string, c Cluster) (string, error) {
	status := c.platform()
	if status.Type != openshift.Azure || azureCloud(&status) != openshift.AzureStackCloud {
		return "", fmt.Errorf("invalid platform, expected CloudName to be %s", openshift.AzureStackCloud)
	}
	config, err := readJSON(source)
	if err != nil {
		return "", err
	}
	if err := config.setDefault("vmType", "standard"); err != nil {
		return "", err
	}
	return config.write()
}

// object is a JSON object. Numbers stay as they were written.
type object map[string]any

func readJSON(source string) (object, error) {
	config, err := parseJSON(source)
	if err != nil {
		return nil, fmt.Errorf("failed to unmarshal the cloud.conf: %w", err)
	}
	return config, nil
}

func parseJSON(source string) (object, error) {
	if strings.TrimSpace(source) == "" {
		return nil, errors.New("it is empty; a JSON object is expected")
	}
	d := json.NewDecoder(strings.NewReader(source))
	d.UseNumber()
	var config object
	if err := d.Decode(&config); err != nil {
		return nil, locate(source, err)
	}
	if config == nil {
		return nil, errors.New("line 1: it is null; a JSON object is expected")
	}
	if _, err := d.Token(); err == nil || d.More() {
		return nil, fmt.Errorf("line %d: there is more after the JSON object", lineAt(source, d.InputOffset()))
	}
	return config, nil
}

// locate adds the line to an error of package json.
func locate(source string, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("line %d: %w", lineAt(source, syntax.Offset), err)
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf("line %d: it is a JSON %s; a JSON object is expected", lineAt(source, kind.Offset), kind.Value)
	}
	return fmt.Errorf("line %d: %w", lineAt(source, int64(len(source))), err)
}

func lineAt(source string, offset int64) int {
	return 1 + strings.Count(source[:min(int(offset), len(source))], "\n")
}

// text answers a key's text; its readers take keys in any case, so that here it
// gets the one that is documented.
func (o object) text(key string) (string, error) {
	for k, v := range o {
		if k == key || !strings.EqualFold(k, key) {
			continue
		}
		if _, twice := o[key]; twice {
			return "", fmt.Errorf("invalid cloud.conf: keys %q and %q are the same to the cloud provider; remove one", k, key)
		}
		delete(o, k)
		o[key] = v
	}
	switch v := o[key].(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	default:
		return "", fmt.Errorf("invalid cloud.conf: key %q: a string is expected", key)
	}
}

func (o object) setDefault(key, value string) error {
	given, err := o.text(key)
	if given == "" {
		o[key] = value
	}
	return err
}

func (o object) write() (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(o)
	return strings.TrimSuffix(b.String(), "\n"), err
}
