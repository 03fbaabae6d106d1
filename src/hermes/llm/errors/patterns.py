"""How providers word their refusals: regular expressions over text without quotes."""


def any_of(*patterns: str) -> str:
    return "|".join(patterns)


N = r"(?P<limit>\d[\d,]*)"


MAX_TOKENS = r"(?:max_?(?:new_|completion_|output_)?_?tokens|maxOutputTokens|max_tokens_to_sample)"
OUTPUT = (
    rf"{MAX_TOKENS}: \d+ > {N},? which is the maximum",
    rf"{MAX_TOKENS}.{{0,80}} is too large.{{0,120}}supports at most {N}",
    rf"supports at most {N} (?:completion|output) tokens",
    rf"{MAX_TOKENS} (?:must|should) be (?:less|smaller|lower) than or equal to {N}",
    rf"{MAX_TOKENS}.{{0,80}}expected a value <= ?{N}",
    rf"{MAX_TOKENS}.{{0,80}}(?:range|between|should be).{{0,40}}\[\d+, ?{N}\]",
    rf"range of {MAX_TOKENS} (?:is|should be) ?\[?\d+, ?{N}",
    r"maxOutputTokens.{0,80}supported range.{0,60}to (?P<limit>\d+) \(excl",
    rf"maximum tokens you requested exceeds the model limit of {N}",
    rf"{MAX_TOKENS}.{{0,60}}(?:exceed|larger|greater|more than).{{0,60}}limit.{{0,20}}? {N}",
    rf"{MAX_TOKENS}.{{0,80}}(?:cannot|must not|may not) exceed {N}",
    rf"maximum (?:value|allowed).{{0,20}} for {MAX_TOKENS}.{{0,20}}? {N}",
    rf"{MAX_TOKENS}.{{0,40}}maximum (?:allowed )?(?:value )?(?:is|of) {N}",
)
CONTEXT = (
    r"maximum context (?:length|size|window)|max(?:imum)?.?(?:model|prompt|sequence|seq).?len",
    r"context.?(?:length|window|size|limit)(?: has been| was| is)?.?exceed|context overflow",
    r"exceed\w*.{0,60}context.?(?:length|window|size|limit)",
    r"exceed_context_size|n_ctx\b|n_ctx_slot|n_ctx_train|n_prompt_tokens|context shift is disabled",
    r"context window (?:is )?(?:exceeds|too small|full)|ran out of context|out of context space",
    r"(?:longer|larger|greater) than the (?:max(?:imum)? |models? )?"
    r"(?:context|model) (?:length|size)",
    r"loaded with context length of only|try to load the model with a larger context",
    r"(?:prompt|input|request|conversation|messages?)(?: \([^)]*\))? "
    r"(?:is|are|was) too (?:long|large)\b",
    r"(?:prompt|input) too long|too long for (?:requested )?model|too large for model",
    r"too many (?:input |prompt |total )?tokens\b|input tokens? exceed",
    r"more than (?:the )?max(?:imum)? tokens",
    r"input.{0,12}token.{0,40}(?:exceeds|cannot exceed|but model only supports)",
    r"exceed\w* (?:the )?(?:max(?:imum)?|allowed) (?:number of |allowed )?"
    r"(?:input |prompt |total )?(?:tokens|token (?:count|limit))",
    r"exceeded model token limit|token limit (?:was |has been )?exceeded|exceeds? the token limit",
    r"prompt token count.{0,30}exceeds|prompt tokens? .{0,30}(?:exceed|too (?:many|long))",
    r"(?:prompt|input).{0,20}length.{0,30}exceeds|prompt exceeds max",
    r"exceeds? (?:the )?max(?:imum)? (?:input|prompt) len|exceeds? (?:the )?max(?:imum)? length\b",
    r"reduce (?:the length of )?(?:the |your )?(?:messages|prompt|input|context|either one)",
    r"(?:tokens (?:in the prompt )?|total tokens )(?:cannot|must not|may not) exceed",
    r"inputs tokens \+ max_new_tokens must be|inputs must have less than \d+ tokens",
    r"requested tokens? (?:\(\d+\) )?exceed|requested token count exceeds",
    r"requested generation length",
    r"range of input length should be|input length .{0,30}exceeds",
    r"cannot exceed the total tokens limit|image and text exceed max message tokens",
    r"expected maxlength: \d+, actual: \d+",
    r"(?:messages|input)(?:\[\d+\])?(?:\.content)?(?:\[\d+\])?(?:\.text)?: "
    r"(?:string|array) too long",
    r"extra usage is required for long context|input exceeds max tokens|prompt_too_long",
    r"超过最大长度|超过.{0,12}最大.{0,12}(?:长度|上下文|token)|超出.{0,12}(?:长度|上下文|token).{0,6}限制",
    r"prompt 超长|输入(?:过|超)长|上下文.{0,8}(?:超|过长)|(?:长度|token).{0,6}(?:超限|超出|超过)",
)
CONTEXT_LIMITS = (
    rf"maximum context (?:length|size|window)(?: of this model)?(?: is|:| of)?(?: only)? \(?{N}",
    rf"> {N} maximum",
    rf"maximum (?:number of tokens|tokens) allowed:? \(?{N}",
    rf"only supports up to {N}",
    rf"(?:available|max(?:imum)?) context (?:size|length) \(?{N}",
    rf"(?:(?:token|context|configured|prompt) limit|context (?:window|length))"
    rf" ?(?:of|is|:)? ?(?:only )?\(?{N}",
    rf"max(?:imum)? (?:model|prompt|input|sequence|supported sequence).?len(?:gth)?"
    rf"(?: is| of|:)?(?: just)?,? \(?{N}",
    rf"max_(?:model|seq)_len\w*(?: is| of|:|=)? ?\(?{N}",
    rf"n_ctx(?:_slot)?[\s:=]+{N}",
    rf"exceeds? (?:the )?limit of {N}",
    rf"max input tokens: {N}",
    rf"input length should be \[\d+, ?{N}",
    rf"must be <= {N}",
    rf"(?:cannot exceed|less than|while limit is|total tokens limit) {N}",
    rf"with {N} maximum context",
    rf"exceeds the maximum length (?:of )?{N}",
    rf"最大(?:上下文)?(?:长度|token数?).{{0,6}}?{N}",
)
"""Where a message about a long prompt states the context length."""
PARTS = r"(\d[\d,]*) (?:tokens )?(?:in|of|for|from) (?:the |your )?([a-z]+)"
"""`(5000 in the messages, 800 in the completion)`: tells whether a smaller answer would fit."""
ROOM = (
    r"exceed context limit: (?P<prompt>\d+) \+ \d+ > (?P<limit>\d+)",
    r"maximum context length is (?P<limit>\d+) tokens and your request has (?P<prompt>\d+) input",
    r"must be <= (?P<limit>\d+)\. given: (?P<prompt>\d+) inputs",
)
PAYLOAD = any_of(
    r"payload size exceeds",
    r"exceeds the maximum size",
    r"body (?:is )?too large",
    r"entity too large",
    r"content length.{0,20}exceed",
)


BAD_UNICODE = any_of(
    r"surrogate",
    r"invalid (?:unicode|utf-?8)",
    r"not valid utf-?8",
    r"invalid u[0-9a-f]{4}",
    r"codec cant encode",
)
BAD_ID = any_of(
    r"tool call id was .{0,80} but must be",
    r"tool_use\.id: string should match pattern",
    r"tool_?use_?id.{0,60}(?:must|should|failed to) (?:match|satisfy)",
    r"(?:tool_calls\[\d+\]\.id|tool_call_id|call_id): string too long",
)
IMAGE_IN_TOOL = any_of(
    r"image urls are only allowed for messages with role user",
    r"message with role tool contains an image",
    r"tool messages?.{0,60}(?:image|must be a string|only (?:support|accept)s? (?:text|string))",
    r"images?.{0,40}(?:in|inside|within) tool.{0,4}(?:results?|messages?|outputs?)",
    r"tool.{0,4}results?.{0,60}(?:cannot|do not|does not|may not|only).{0,40}(?:images?|text)",
    r"tool, content\W+(?:msg|input should be a valid string)",
    r"tool\.content.{0,20}valid string",
    r"function_call_output.{0,60}(?:image|string)",
)
BAD_IMAGE = any_of(
    r"images? exceeds? |image dimensions exceed|too many images|at most [1-9]\d* image",
    r"image.{0,30}too (?:large|big|small|many)",
    r"maximum (?:number of |image )?(?:images|size).{0,40}image",
    r"(?:could not|unable to|failed to|cannot) (?:process|decode|download|load|fetch|read|open)"
    r".{0,24}image",
    r"(?:invalid|unsupported|corrupt\w*) (?:base64 )?image(?! input)",
    r"does not represent a valid image"
    r"|image (?:data |format |type )?(?:is )?(?:invalid|unsupported|not valid)",
)
"""About the images of this conversation, not about what the model supports."""
IMAGE = any_of(
    r"image_url is only supported by|unknown variant image_url",
    r"content type.{0,12}image_url",
    r"(?:doesnt|dont|not|cannot|only) (?:currently )?(?:support|accept|process|have).{0,40}"
    r"(?:images?|vision|multimodal|multi-modal)\b",
    r"(?:image|vision|multimodal)s? (?:inputs?|content|urls?|data)?.{0,20}"
    r"(?:not|un)[ -]?(?:supported|allowed|enabled|available)",
    r"at most 0 image|image input is not",
    r"(?:invalid|unsupported|corrupt\w*) (?:media.?type|mime.?type|file type)",
    r"mmproj",
    r"missing data required for image input",
    r"support image input",
    r"doesnt support the (?:image|video|document|audio|s3uri)",
    r"cannot fetch content from the provided url",
    r"expected to be either text or image_url type",
    r"file type you uploaded is not supported",
    r"media_type: input should be",
)
REPLAY = any_of(
    r"invalid signature in thinking",
    r"signature.{0,40}(?:thinking|reasoning).{0,40}(?:invalid|not valid|field required)",
    r"(?:thinking|reasoning).{0,40}signature.{0,40}(?:invalid|required|not)",
    r"expected thinking or redacted_thinking",
    r"redacted_thinking blocks?.{0,80}(?:modified|must)",
    r"thinking blocks?.{0,80}(?:cannot be modified|must remain|must be preserved)",
    r"encrypted.{0,4}content.{0,80}(?:could not|cannot|invalid|not be|failed|mismatch)",
    r"invalid encrypted",
    r"could not (?:decrypt|decode|verify).{0,40}(?:content|reasoning|blob|thinking)",
    r"of type reasoning was provided without",
    r"provided without its required (?:reasoning|following)",
    r"item with id .{0,80} not found",
    r"items are not persisted when store",
    r"thought.?signature",
    r"user messages cannot contain reasoning",
    r"support the reasoningcontent",
    r"reasoning_(?:content|details|text).{0,40}"
    r"(?:is unsupported|extra inputs|not permitted|not allowed|is not supported in)",
    r"messages[.\[].{0,40}(?:reasoning|thinking)\w*\W+(?:extra inputs|field required|property)",
    r"previous_response_id",
    r"previous response .{0,60}not found",
)
REPLAY_MISSING = any_of(
    r"reasoning_content.{0,60}(?:is missing|must be (?:passed|provided|included)|required)",
    r"missing reasoning_content",
    r"thinking.{0,40}must be passed back",
)
ORDER = any_of(
    r"tool_use ids? (?:were|was) found without",
    r"tool_use block must have",
    r"unexpected tool_use_id",
    r"tool_calls must be followed by",
    r"must be a response to a prec",
    r"insufficient tool messages",
    r"tool_call_ids? (?:of .{0,80}|.{0,40}is )not found",
    r"tool_call_id.{0,8}not found",
    r"tool_call_ids did not",
    r"no tool (?:output|call) found for",
    r"no (?:function|tool) call.{0,20}found",
    r"orphan",
    r"roles? must alternate",
    r"alternate between",
    r"must start with a user",
    r"first (?:message|content|turn).{0,40}user",
    r"expected toolresult|toolresult blocks at",
    r"tool_calls\W+\d+\W+function\.(?:name|arguments)|(?:function_call|tool_?use)\.(?:name|input|args)",
    r"tooluse and toolresult",
    r"toolconfig field must be defined",
    r"number of function response",
    r"function (?:call|response) turn",
    r"functionresponse.{0,40}functioncall",
    r"not the same number of function calls",
    r"unexpected role (?!developer)",
    r"expected last role",
    r"must end with a user",
    r"assistant (?:message )?prefill",
    r"last message (?:must|cannot|should)",
    r"(?:text content blocks|content|messages?).{0,60}"
    r"(?:must be|must have|must contain|cannot be|must not be|should not be|is) "
    r"(?:non-?(?:empty|whitespace)|an? empty|empty)",
    r"contents (?:is not specified|is required|field is required)",
    r"at least one (?:message|content|parts field)",
    r"messages: field required",
    r"cannot end with (?:an assistant|trailing whitespace)",
    r"tool_use ids must be unique",
    r"duplicate (?:value for )?tool_?(?:call|use)",
    r"multiple tool_result",
    r"tool call (?:result does not follow|and result)",
    r"tool (?:id|result).{0,40}(?:not found|not match)",
    r"messages (?:参数非法|parameter is illegal)",
    r"preced\w+ (?:message|tool)",
    r"raise_exception",
)
STREAM = any_of(
    r"stream(?:ing)?(?: mode| responses?)?(?: is| are)?(?: currently)? "
    r"(?:not|un)[ -]?(?:supported|available|allowed|enabled|implemented)",
    r"(?:doesnt|dont|not) (?:currently )?support(?: tool use in)? stream(?:ing)?\b(?!_)",
    r"unsupported (?:parameter|value): stream\b",
    r"stream does not support true",
    r"verified to stream",
    r"cannot use tools with stream",
    r"stream must be false",
)


FORBIDDEN = any_of(
    r"data policy",
    r"(?:country|region|territory).{0,30}not supported",
    r"not supported in your",
    r"user location is not supported",
    r"model_terms_required",
    r"terms.{0,20}accept",
    r"marketplace",
    r"dont have access to the model with",
    r"not authorized to (?:perform|invoke|access)",
    r"must be verified to use",
    r"org\w* (?:has been )?disabled",
)
POLICY = any_of(
    r"content.?(?:policy|filter|management policy)",
    r"responsible ?ai",
    r"(?:usage|content|safety) (?:polic(?:y|ies)|guidelines)",
    r"safety (?:system|filter|reasons)",
    r"flagged (?:as|by|for)|(?:was|were) flagged",
    r"moderation (?:block|failed)|requires moderation",
    r"inappropriate content|content exists risk|considered high risk|prohibited.?content",
    r"new_sensitive",
    r"blocked by.{0,40}(?:safety|filter|guardrail|policy)",
    r"guardrail.{0,20}(?:block|interven)",
    r"data_?inspection",
    r"不安全或敏感|敏感(?:内容|信息|词)|内容安全|违规",
)
NO_CREDIT = any_of(
    r"insufficient.{0,12}(?:balance|credit|quota|funds)",
    r"(?:credit|account) balance is too low",
    r"余额不足|欠费",
    r"(?:out of|no|more|not enough|used all).{0,20}credits",
    r"credits? (?:limit|exhausted|have been)",
    r"billing (?:hard |details|not|is|has|account)",
    r"billing.{0,20}(?:disabled|enabled|inactive)",
    r"payment required",
    r"(?:spend|spending|usage|monthly|weekly|daily|plan).{0,3} ?(?:limit|quota|cap)s? "
    r"(?:has been |was |is )?(?:reached|exceeded|hit)",
    r"(?:reached|hit|exceeded).{0,40}(?:spending|usage|monthly|credit|plan|budget).{0,20}"
    r"(?:limit|credits|cap|quota)",
    r"arrear",
    r"account (?:is |has been )?(?:suspended|not active|in good standing)",
    r"quota (?:is |has been )?(?:exhausted|used up)",
    r"perday",
    r"recharge|top up your",
)
BAD_KEY = any_of(
    r"api.?key.{0,40}(?:not valid|invalid|expired|incorrect|missing|required|not found|revoked"
    r"|disabled|wrong)",
    r"(?:invalid|incorrect|missing|wrong|no|expired|unknown|bad)\b.{0,12}"
    r"(?:api.?key|x-api-key|access token|auth\w* token|bearer|credentials?)",
    r"api_key_invalid|unauthenticated|unauthorized",
    r"authentication (?:failed|required|error|fails)",
    r"security token.{0,40}(?:invalid|expired)",
    r"signature we calculated|missing authentication",
    r"token (?:has |is |was )?(?:expired|invalid|revoked)",
    r"unregistered callers|no auth credentials|login fail|not logged in",
    r"身份验证|无效的?(?:api|令牌|token|密钥)",
)
NO_MODEL = any_of(
    r"model\b.{0,160}(?:(?:does )?not exist|not found|is not available|is unavailable"
    r"|not supported for|end of its life|is not supported\.?$|isnt supported|not a valid model"
    r"|has been (?:deprecated|decommissioned|retired|removed|shut ?down|discontinued)"
    r"|is (?:deprecated|retired)|no longer (?:available|supported))",
    r"not found the model|not a valid model|no such model|model.?not.?found",
    r"(?:unknown|invalid|unsupported|unrecognized) model\b(?! (?:parameter|argument))",
    r"model identifier is invalid|try pulling it|on-demand throughput isnt supported",
    r"could not resolve the foundation model|deployment for this resource does not exist",
    r"no endpoints found for|unable to access model|models?/\S+ is not found",
    r"no model (?:named|loaded|matches)|^model: \S+$",
    r"模型不存在|未知模型",
)


FIELDS = (
    "temperature|top_p|top_k|topP|topK|min_p|tool_choice|toolConfig|parallel_tool_calls"
    "|reasoning_effort|reasoning_format|reasoning_split|reasoning|thinking_budget|thinkingConfig"
    "|thinkingLevel|thinkingBudget|thinking_level|thinking_config|enable_thinking|thinking|think"
    "|effort|output_config|verbosity"
    "|stream_options|include_usage|max_completion_tokens|max_output_tokens|max_tokens"
    "|maxOutputTokens|response_format|stopSequences|stop_sequences|stop|seed|logprobs|store"
    "|metadata|service_tier|prompt_cache_key|prompt_cache_retention|cache_control|cachePoint"
    "|presence_penalty|frequency_penalty|presencePenalty|frequencyPenalty|logit_bias"
    "|truncation|strict|context_management|anthropic-beta|systemInstruction|instructions"
)
FIELD = rf"(?P<param>{FIELDS})"
PATH = r"(?P<param>[A-Za-z_][\w.\[\]-]*)"
PARAMETER = (
    rf"^{FIELD}: ",
    rf"(?:unsupported|unknown|unrecognized|unexpected|invalid|illegal|extra) (?:request )?"
    rf"(?:param\w*|arguments?|value|fields?|keys?|propert\w+|name|input)(?: supplied)?"
    rf"\W+(?:(?:at|for|in|of) )?{PATH}",
    rf"(?:extraneous key|property) \[?{PATH}\]? is "
    r"(?:not permitted|unsupported|not supported|not allowed)",
    rf"doesnt support the {PATH} field",
    rf"loc\W+body\W+{PATH}.{{0,160}}(?:extra_forbidden|extra inputs|not permitted)",
    rf"extra_forbidden.{{0,80}}body\W+{PATH}",
    rf"{PATH}: (?:extra inputs are not permitted|extra fields? not permitted|unknown field)",
    rf"(?:arguments?|parameters?) (?:is |are )?not supported(?: on this model)?\W+{PATH}",
    rf"(?:does not|doesnt) support (?:the )?(?:param\w*|arguments?):? ?\W*{PATH}",
    rf"\b{FIELD}\b(?: (?:param\w*|field|option|value|level|type|budget))?[:.]?(?: [\w.]+)? "
    r"(?:is |are |was )?(?:not (?:be )?(?:supported|allowed|permitted|valid|available|recognized"
    r"|enabled|configurable)|unsupported|deprecated|disabled|invalid|unknown|unrecognized"
    r"|unexpected|incompatible)",
    r"(?:not support|unsupported|invalid|unknown|unexpected|deprecated|incompatible|dont support"
    rf"|doesnt support)\W.{{0,40}}?\b{FIELD}\b",
    rf"\b{FIELD}\b.{{0,60}}(?:must be (?:one of|set|unset|greater|between|omitted)|may only be"
    r"|can only be|cannot be|only (?:the default|\S+ is allowed)|should be|does not support"
    r"|is incompatible|input should be|not enabled)",
    rf"only (?:the default )?.{{0,30}}(?:value )?(?:is )?(?:supported|allowed) for {FIELD}\b",
)
SCHEMA = any_of(
    r"grammar",
    r"unable to generate parser",
    r"function_declarations?\[\d+\]",
    r"invalid schema for",
    r"json schema (?:is )?(?:invalid|not)",
    r"input_schema",
    r"toolspec\.inputschema",
)
NO_TOOLS = any_of(
    r"support (?:the )?(?:tools?\b(?!_)|tool.?(?:use|usage|calls?|calling)|function.?call)",
    r"tool.?(?:use|calling|calls?)s? (?:is|are) (?:not|un)",
    r"enable-auto-tool-choice",
    r"function calling is (?:not|un)",
    r"tools? (?:param )?requires? --jinja",
    r"tools(?: field)? (?:is|are) not",
    r"unsupported param\w*: tools",
)
NO_INSTRUCTION = r"developer instruction is not enabled"
NO_DEVELOPER = any_of(
    r"\.role does not support developer",
    r"(?:unknown variant|unexpected role|invalid role) developer",
)
NO_SUMMARY = r"verified to generate reasoning"
NO_THINKING = any_of(
    r"thinking (?:mode )?is (?:not|un)",
    r"works in thinking mode",
    r"support thinking",
    r"adaptive thinking",
    r"greater than thinking\.budget",
)


OVERLOADED = any_of(
    r"overload|over capacity|at capacity|capacity (?:exceeded|constraints?|limit)|high demand",
    r"no (?:available|healthy) (?:instances?|upstream|servers?)|server is busy",
    r"temporarily unavailable|model is not ready",
    r"系统繁忙|服务繁忙|过载",
)
RATE_LIMITED = any_of(
    r"rate.?limit|too many requests|throttl",
    r"requests per (?:min|second|hour|day)",
    r"速率限制|并发",
)
NETWORK = any_of(
    r"network connection (?:was )?lost",
    r"connection (?:reset|closed|aborted|refused|error)",
    r"premature|socket hang up|econnreset|broken pipe",
    r"upstream (?:connect|prematurely|disconnect)",
)
SERVER = r"internal (?:server )?error|server error|something went wrong|timed? ?out|bad gateway"
