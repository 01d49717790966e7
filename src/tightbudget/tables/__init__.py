"""Tables where the rows live: in files, frames, databases and clusters, asked by Ibis.

A table declares its unit of privacy and its bounds. A mechanism on a table scans it once, and
answers from one small vector of integers, for a price that its output decides.
"""

from tightbudget.tables.answer import TableAnswer
from tightbudget.tables.derived_keys import Months, Quarters, ValueBins, Years
from tightbudget.tables.mechanisms.above_threshold import AboveThreshold, AboveThresholdRun
from tightbudget.tables.mechanisms.count import Count
from tightbudget.tables.mechanisms.count_distinct import CountDistinct
from tightbudget.tables.mechanisms.counts import Counts
from tightbudget.tables.mechanisms.counts_above import CountsAbove
from tightbudget.tables.mechanisms.gradual import GradualCount, GradualSum
from tightbudget.tables.mechanisms.grouped_counts import GroupedCounts
from tightbudget.tables.mechanisms.grouped_means import GroupedMeans
from tightbudget.tables.mechanisms.grouped_quantiles import GroupedQuantiles
from tightbudget.tables.mechanisms.grouped_sums import GroupedSums
from tightbudget.tables.mechanisms.histogram_counts import HistogramCounts
from tightbudget.tables.mechanisms.mean import Mean
from tightbudget.tables.mechanisms.most_frequent import MostFrequent
from tightbudget.tables.mechanisms.order_statistics import OrderStatistic
from tightbudget.tables.mechanisms.quantiles import Quantiles
from tightbudget.tables.mechanisms.ratio import Ratio
from tightbudget.tables.mechanisms.selected_keys import SelectedCounts, SelectedKeys
from tightbudget.tables.mechanisms.sum import Sum
from tightbudget.tables.mechanisms.tested_counts import GatedCounts
from tightbudget.tables.mechanisms.top_groups import TopGroups
from tightbudget.tables.mechanisms.variance import Variance
from tightbudget.tables.session import Session
from tightbudget.tables.session_preview import QuestionPreview, SessionPreview
from tightbudget.tables.table import Table

__all__ = [
    "AboveThreshold",
    "AboveThresholdRun",
    "ValueBins",
    "Count",
    "CountDistinct",
    "Counts",
    "CountsAbove",
    "GradualCount",
    "GradualSum",
    "GroupedCounts",
    "GroupedMeans",
    "GroupedQuantiles",
    "GroupedSums",
    "HistogramCounts",
    "Mean",
    "Months",
    "MostFrequent",
    "OrderStatistic",
    "Quantiles",
    "Quarters",
    "QuestionPreview",
    "Ratio",
    "SelectedCounts",
    "SelectedKeys",
    "Session",
    "SessionPreview",
    "Sum",
    "Table",
    "TableAnswer",
    "GatedCounts",
    "TopGroups",
    "Variance",
    "Years",
]
