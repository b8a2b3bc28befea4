// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/jsonobject"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

const azurePublicCloud = "AzurePublicCloud"

var azureClouds = []string{azurePublicCloud, "AzureUSGovernmentCloud", "AzureChinaCloud", "AzureGermanCloud", openshift.AzureStackCloud}

// azureCloud returns the name of the cluster's cloud.
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
	config, err := readAzure(source)
	if err != nil {
		return "", err
	}
	if !slices.Contains(azureClouds, cloud) {
		return "", field.NotSupported(field.NewPath("status", "platformStatus", "azure", "cloudName"), cloud, azureClouds)
	}
	given, err := config.Text("cloud")
	if err != nil {
		return "", err
	}
	if given != "" && !strings.EqualFold(given, cloud) {
		return "", fmt.Errorf(`invalid user-provided cloud.conf: "cloud" field in user-provided cloud.conf conflicts with infrastructure object: it is %q, and that says %q`, given, cloud)
	}
	config["cloud"] = cloud
	config.Set("clusterServiceLoadBalancerHealthProbeMode", "shared")
	return config.Write()
}

func transformAzureStackHub(source string, c Cluster) (string, error) {
	status := c.platform()
	if status.Type != openshift.Azure || azureCloud(&status) != openshift.AzureStackCloud {
		return "", fmt.Errorf("invalid platform, expected CloudName to be %s", openshift.AzureStackCloud)
	}
	config, err := readAzure(source)
	if err != nil {
		return "", err
	}
	return config.Write()
}

// readAzure reads a configuration, and sets what both clouds need.
func readAzure(source string) (jsonobject.Object, error) {
	config, err := jsonobject.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("failed to unmarshal the cloud.conf: %w", err)
	}
	return config, config.Default("vmType", "standard")
}
