"""Self-contained HTML pages, Word documents and workbooks, and the report of an estimate."""

from nestquad.pages._blocks import Block as Block
from nestquad.pages._blocks import Bullets as Bullets
from nestquad.pages._blocks import Drawing as Drawing
from nestquad.pages._blocks import Heading as Heading
from nestquad.pages._blocks import Headline as Headline
from nestquad.pages._blocks import PageEnd as PageEnd
from nestquad.pages._blocks import Table as Table
from nestquad.pages._blocks import Text as Text
from nestquad.pages._blocks import html as html
from nestquad.pages._documents import document as document
from nestquad.pages._documents import workbook as workbook
from nestquad.pages._html import bullets as bullets
from nestquad.pages._html import figure as figure
from nestquad.pages._html import footer as footer
from nestquad.pages._html import grid as grid
from nestquad.pages._html import money as money
from nestquad.pages._html import paragraphs as paragraphs
from nestquad.pages._html import percent as percent
from nestquad.pages._html import picture as picture
from nestquad.pages._html import span as span
from nestquad.pages._html import table as table
from nestquad.pages._html import versions as versions
from nestquad.pages._html import write_page as write_page
from nestquad.pages._report import write_report as write_report
