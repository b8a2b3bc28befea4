// SPDX-License-Identifier: Apache-2.0

// Package provider gives github.com/outrigger/outrigger/provider/compat the import path
// that providers for Confidential Containers' cloud-api-adaptor have in their sources.
package provider

import "github.com/outrigger/outrigger/provider/compat"

type (
	Provider         = compat.Provider
	CloudProvider    = compat.CloudProvider
	Instance         = compat.Instance
	InstanceTypeSpec = compat.InstanceTypeSpec
	CloudVolume      = compat.CloudVolume
	KeyValueFlag     = compat.KeyValueFlag
	FlagOption       = compat.FlagOption
	FlagRegistrar    = compat.FlagRegistrar
)

var (
	AddCloudProvider = compat.AddCloudProvider
	Get              = compat.Get
	List             = compat.List

	DefaultToEnv     = compat.DefaultToEnv
	NewFlagRegistrar = compat.NewFlagRegistrar
	Required         = compat.Required
	Secret           = compat.Secret

	SortInstanceTypesOnResources  = compat.SortInstanceTypesOnResources
	SelectInstanceTypeToUse       = compat.SelectInstanceTypeToUse
	VerifyCloudInstanceType       = compat.VerifyCloudInstanceType
	GetBestFitInstanceType        = compat.GetBestFitInstanceType
	GetBestFitInstanceTypeWithGPU = compat.GetBestFitInstanceTypeWithGPU
	FilterOutGPUInstances         = compat.FilterOutGPUInstances
)
