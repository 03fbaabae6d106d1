"""What providers say when they refuse, as an ordered table: the first row that fits decides."""

from __future__ import annotations

from msgspec import Struct

from hermes.core.errors import Kind

NONE = 0
"""Stands for: no HTTP status, the error came inside a 200 answer."""
REQUEST = frozenset({NONE, 200, 400, 404, 422})
ANYWHERE = frozenset({NONE, 200, 400, 409, 412, 413, 422, *range(500, 600)})
"""Where a request that is too long is reported: routers wrap the real error in anything."""
DENIED = frozenset({NONE, 200, 400, 401, 403, 422})


class Rule(Struct, frozen=True):
    """`text` is searched in the message (quotes removed, case ignored), `code` must match the
    whole code; what is empty matches everything. Groups `limit` and `param` fill the Failure."""

    kind: Kind
    text: str = ""
    status: frozenset[int] | None = None
    code: str = ""
    param: str = ""


def _at(*statuses: int) -> frozenset[int]:
    return frozenset(statuses)


_N = r"(?P<limit>\d[\d,]*)"
_OUT = r"(?:max_?(?:new_|completion_|output_)?_?tokens|maxOutputTokens|max_tokens_to_sample)"

# -- how large -----------------------------------------------------------------------------------

TOO_MUCH_AT_ONCE = (
    # Tokens per minute, not the size of the request; must stand before the context rows.
    Rule(Kind.CONTEXT_OVERFLOW, rf"request too large\b.{{0,200}}\blimit:? {_N}"),
    Rule(Kind.RATE_LIMITED, r"too many tokens(?: per day)?, (?:please )?wait"),
    Rule(Kind.RATE_LIMITED, r"tokens per (?:min|hour|day)|rate.?limit", _at(429)),
)

OUTPUT = (
    Rule(Kind.OUTPUT_CAP, rf"{_OUT}: \d+ > {_N},? which is the maximum"),
    Rule(Kind.OUTPUT_CAP, rf"{_OUT}.{{0,80}} is too large.{{0,120}}supports at most {_N}"),
    Rule(Kind.OUTPUT_CAP, rf"supports at most {_N} (?:completion|output) tokens"),
    Rule(Kind.OUTPUT_CAP, rf"{_OUT} (?:must|should) be (?:less|smaller|lower) than or equal to {_N}"),
    Rule(Kind.OUTPUT_CAP, rf"{_OUT}.{{0,80}}(?:range|between|should be).{{0,40}}\[\d+, ?{_N}\]"),
    Rule(Kind.OUTPUT_CAP, rf"range of {_OUT} (?:is|should be) ?\[?\d+, ?{_N}"),
    Rule(Kind.OUTPUT_CAP, r"maxOutputTokens.{0,80}supported range.{0,60}to (?P<limit>\d+) \(excl"),
    Rule(Kind.OUTPUT_CAP, rf"maximum tokens you requested exceeds the model limit of {_N}"),
    Rule(Kind.OUTPUT_CAP, rf"{_OUT}.{{0,60}}(?:exceed|larger|greater|more than).{{0,60}}limit.{{0,20}}? {_N}"),
    Rule(Kind.OUTPUT_CAP, rf"{_OUT}.{{0,80}}(?:cannot|must not|may not) exceed {_N}"),
    Rule(Kind.OUTPUT_CAP, rf"maximum (?:value|allowed).{{0,20}} for {_OUT}.{{0,20}}? {_N}"),
    Rule(Kind.OUTPUT_CAP, rf"{_OUT}.{{0,40}}maximum (?:allowed )?(?:value )?(?:is|of) {_N}"),
)

_CONTEXT_TEXTS = (
    r"maximum context (?:length|size|window)|max(?:imum)?.?(?:model|prompt|sequence|seq).?len",
    r"context.?(?:length|window|size|limit)(?: has been| was| is)?.?exceed|context overflow",
    r"exceed\w*.{0,60}context.?(?:length|window|size|limit)",
    r"exceed_context_size|n_ctx\b|n_ctx_slot|n_ctx_train|n_prompt_tokens|context shift is disabled",
    r"context window (?:is )?(?:exceeds|too small|full)|ran out of context|out of context space",
    r"(?:longer|larger|greater) than the (?:max(?:imum)? |models? )?(?:context|model) (?:length|size)",
    r"loaded with context length of only|try to load the model with a larger context",
    r"(?:prompt|input|request|conversation|messages?)(?: \([^)]*\))? (?:is|are|was) too (?:long|large)\b(?! file)",
    r"(?:prompt|input) too long|too long for (?:requested )?model|too large for model",
    r"too many (?:input |prompt |total )?tokens\b|input tokens? exceed",
    r"input.{0,12}token.{0,40}(?:exceeds|cannot exceed|but model only supports)",
    r"exceed\w* (?:the )?(?:max(?:imum)?|allowed) (?:number of |allowed )?(?:input |prompt |total )?(?:tokens|token (?:count|limit))",
    r"exceeded model token limit|token limit (?:was |has been )?exceeded|exceeds? the token limit",
    r"prompt token count.{0,30}exceeds|prompt tokens? .{0,30}(?:exceed|too (?:many|long))",
    r"(?:prompt|input).{0,20}length.{0,30}exceeds|exceeds? (?:the )?max(?:imum)? (?:input|prompt) length",
    r"prompt exceeds max|exceeds? (?:the )?max(?:imum)? length\b",
    r"reduce (?:the length of )?(?:the |your )?(?:messages|prompt|input|context|either one)",
    r"(?:tokens (?:in the prompt )?|total tokens )(?:cannot|must not|may not) exceed",
    r"inputs tokens \+ max_new_tokens must be|inputs must have less than \d+ tokens",
    r"requested tokens? (?:\(\d+\) )?exceed|requested token count exceeds|requested generation length",
    r"range of input length should be|input length .{0,30}exceeds",
    r"cannot exceed the total tokens limit|image and text exceed max message tokens",
    r"expected maxlength: \d+, actual: \d+",
    r"(?:messages|input)(?:\[\d+\])?(?:\.content)?(?:\[\d+\])?(?:\.text)?: (?:string|array) too long",
    r"extra usage is required for long context|input exceeds max tokens|prompt_too_long",
    r"超过最大长度|超过.{0,12}最大.{0,12}(?:长度|上下文|token)|超出.{0,12}(?:长度|上下文|token).{0,6}限制"
    r"|prompt 超长|输入(?:过|超)长|上下文.{0,8}(?:超|过长)|(?:长度|token).{0,6}(?:超限|超出|超过)",
)
CONTEXT = (
    *(Rule(Kind.CONTEXT_OVERFLOW, text, ANYWHERE) for text in _CONTEXT_TEXTS),
    Rule(
        Kind.CONTEXT_OVERFLOW,
        status=ANYWHERE,
        code=r"context_length_exceeded|exceed_context_size_error|model_max_prompt_tokens_exceeded"
        r"|context_window_exceeded|prompt_too_long|max_tokens_exceeded|1261|tokens_limit_reached",
    ),
)
CONTEXT_LIMITS = (
    rf"maximum context (?:length|size|window)(?: of this model)?(?: is|:| of)?(?: only)? \(?{_N}",
    rf"> {_N} maximum",
    rf"\d+ \+ \d+ > {_N}",
    rf"maximum (?:number of tokens|tokens) allowed:? \(?{_N}",
    rf"only supports up to {_N}",
    rf"(?:available|max(?:imum)?) context (?:size|length) \(?{_N}",
    rf"(?:token|context|configured|prompt) (?:limit|window|length) ?(?:of|is|:)? ?(?:only )?\(?{_N}",
    rf"context length \({_N}",
    rf"max(?:imum)? (?:model|prompt|input|sequence|supported sequence).?len(?:gth)?(?: is| of|:)?(?: just)?,? \(?{_N}",
    rf"max_(?:model|seq)_len\w*(?: is| of|:|=)? ?\(?{_N}",
    rf"n_ctx(?:_slot)?[\s:=]+{_N}",
    rf"exceeds? (?:the )?limit of {_N}",
    rf"max input tokens: {_N}",
    rf"input length should be \[\d+, ?{_N}",
    rf"must be <= {_N}",
    rf"(?:cannot exceed|less than) {_N}",
    rf"total tokens limit {_N}",
    rf"while limit is {_N}",
    rf"with {_N} maximum context",
    rf"exceeds the maximum length (?:of )?{_N}",
    rf"context length of only {_N}",
    rf"最大(?:上下文)?(?:长度|token数?).{{0,6}}?{_N}",
)
PROMPT_PARTS = r"(\d[\d,]*) (?:tokens )?(?:in|of|for|from) (?:the |your )?([a-z]+)"
"""`(5000 in the messages, 800 in the completion)`: tells whether a smaller answer would fit."""
ROOM = (
    r"exceed context limit: (?P<prompt>\d+) \+ (?P<answer>\d+) > (?P<limit>\d+)",
    r"maximum context length is (?P<limit>\d+) tokens and your request has (?P<prompt>\d+) input",
    r"must be <= (?P<limit>\d+)\. given: (?P<prompt>\d+) inputs",
)

# -- what was sent -------------------------------------------------------------------------------

_BAD_ID = (
    r"tool call id was .{0,80} but must be|tool_use\.id: string should match pattern"
    r"|tool_?use_?id.{0,60}(?:must|should|failed to) (?:match|satisfy)"
    r"|(?:tool_calls\[\d+\]\.id|tool_call_id|call_id): string too long"
)
_IMAGE_IN_TOOL = (
    r"image urls are only allowed for messages with role user"
    r"|message with role tool contains an image|tool messages?.{0,60}(?:image|must be a string|only (?:support|accept)s? (?:text|string))"
    r"|images?.{0,40}(?:in|inside|within) tool.{0,4}(?:results?|messages?|outputs?)"
    r"|tool.{0,4}results?.{0,60}(?:cannot|do not|does not|may not|only).{0,40}(?:images?|text)"
    r"|tool, content\W+(?:msg|input should be a valid string)|tool\.content.{0,20}valid string"
    r"|function_call_output.{0,60}(?:image|string)"
)
_IMAGE = (
    r"image_url is only supported by|unknown variant image_url|content type.{0,12}image_url"
    r"|(?:does ?n[o]?t|do not|not|cannot|only) (?:currently )?(?:support|accept|process|have).{0,40}(?:images?|vision|multimodal|multi-modal)\b"
    r"|(?:image|vision|multimodal)s? (?:inputs?|content|urls?|data)?.{0,20}(?:not|un)[ -]?(?:supported|allowed|enabled|available)"
    r"|images? exceeds? |image dimensions exceed|image.{0,30}too (?:large|big|small|many)|too many images"
    r"|at most \d+ image|maximum (?:number of |image )?(?:images|size).{0,40}image"
    r"|(?:could not|unable to|failed to|cannot) (?:process|decode|download|load|fetch|read|open).{0,24}image"
    r"|(?:invalid|unsupported|corrupt\w*) (?:image|base64 image|image_url|media.?type|mime.?type|file type)"
    r"|does not represent a valid image|image (?:data |format |type )?(?:is )?(?:invalid|unsupported|not valid)"
    r"|image input is not|mmproj|missing data required for image input|support image input"
    r"|doesn.?t support the (?:image|video|document|audio|s3uri)"
    r"|cannot fetch content from the provided url|expected to be either text or image_url type"
    r"|unsupported mime type|file type you uploaded is not supported|media_type: input should be"
)
_REPLAY = (
    r"invalid signature in thinking|signature.{0,40}(?:thinking|reasoning).{0,40}(?:invalid|not valid|field required)"
    r"|(?:thinking|reasoning).{0,40}signature.{0,40}(?:invalid|required|not|do(?:es)? not)"
    r"|expected thinking or redacted_thinking|redacted_thinking blocks?.{0,80}(?:modified|must)"
    r"|thinking blocks?.{0,80}(?:cannot be modified|must remain|must be preserved)"
    r"|encrypted.{0,4}content.{0,80}(?:could not|cannot|invalid|not be|failed|mismatch)|invalid encrypted"
    r"|could not (?:decrypt|decode|verify).{0,40}(?:content|reasoning|blob|thinking)"
    r"|of type reasoning was provided without|provided without its required (?:reasoning|following)"
    r"|item with id .{0,80} not found|items are not persisted when store"
    r"|thought.?signature|thoughtsignature"
    r"|user messages cannot contain reasoning|support the reasoningcontent"
    r"|reasoning_?(?:content|details)?.{0,40}(?:is unsupported|extra inputs|not permitted|not allowed|is not supported in)"
    r"|messages[.\[].{0,40}(?:reasoning|thinking)\w*\W+(?:extra inputs|field required|property)"
    r"|previous_response_id|previous response .{0,60}not found"
)
_REPLAY_MISSING = (
    r"reasoning_content.{0,60}(?:is missing|must be passed|required|must be (?:provided|included))"
    r"|missing reasoning_content|thinking.{0,40}must be passed back"
)
_ORDER = (
    r"tool_use ids? (?:were|was) found without|tool_use block must have|unexpected tool_use_id"
    r"|tool_calls must be followed by|must be a response to a prec|insufficient tool messages"
    r"|tool_call_ids? (?:of .{0,80}|did not|.{0,40}is) not found|tool_call_id.{0,8}not found|tool_call_ids did not"
    r"|no tool (?:output|call) found for|no (?:function|tool) call.{0,20}found|orphan"
    r"|roles? must alternate|alternate between|must start with a user|first (?:message|content|turn).{0,40}user"
    r"|expected toolresult|toolresult blocks at|tooluse and toolresult|toolconfig field must be defined"
    r"|number of function response|function (?:call|response) turn|functionresponse.{0,40}functioncall"
    r"|not the same number of function calls|unexpected role|expected last role"
    r"|must end with a user|assistant (?:message )?prefill|last message (?:must|cannot|should)"
    r"|(?:text content blocks|content|messages?).{0,60}(?:must be|must have|must contain|cannot be|must not be|should not be|is) (?:non-?(?:empty|whitespace)|an? empty|empty)"
    r"|contents (?:is not specified|is required|field is required)|at least one (?:message|content|parts field)|messages: field required"
    r"|cannot end with (?:an assistant|trailing whitespace)|tool_use ids must be unique|duplicate (?:value for )?tool_?(?:call|use)"
    r"|multiple tool_result|tool call (?:result does not follow|and result)|tool (?:id|result).{0,40}(?:not found|not match)"
    r"|messages (?:参数非法|parameter is illegal)|conversation roles"
    r"|preced\w+ (?:message|tool)|raise_exception"
)
_STREAM = (
    r"stream(?:ing)?(?: mode| responses?)?(?: is| are)?(?: currently)? (?:not|un)[ -]?(?:supported|available|allowed|enabled|implemented)"
    r"|(?:does ?n[o']?t|do not|not) (?:currently )?support(?: tool use in)? stream(?:ing)?\b(?!_)"
    r"|unsupported (?:parameter|value): stream\b|stream does not support true|verified to stream"
    r"|cannot use tools with stream|tool use in streaming|stream(?:=true| must be false)"
    r"|invokemodelwithresponsestream.{0,40}not"
)
SHAPE = (
    Rule(
        Kind.BAD_UNICODE,
        r"surrogate|invalid (?:unicode|utf-?8)|not valid utf-?8|invalid \\?u[0-9a-f]{4}|codec cant encode",
        REQUEST,
    ),
    Rule(Kind.PARAMETER, _BAD_ID, REQUEST, param="call_id"),
)
CONVERSATION = (
    Rule(Kind.REPLAY_REJECTED, code="invalid_encrypted_content|invalid_thinking_signature"),
    Rule(Kind.REPLAY_REJECTED, _REPLAY_MISSING, REQUEST, param="missing"),
    Rule(Kind.REPLAY_REJECTED, _REPLAY, REQUEST),
    Rule(Kind.STREAM_UNSUPPORTED, _STREAM, REQUEST | {403, 405, 501}),
    Rule(Kind.MEDIA_REJECTED, _IMAGE_IN_TOOL, REQUEST, param="tool_image"),
    Rule(Kind.MEDIA_REJECTED, _IMAGE, REQUEST | {413, 415, 500}, param="image"),
    Rule(
        Kind.MEDIA_REJECTED,
        code="invalid_image\\w*|image_\\w+|unsupported_(?:image|file)\\w*",
        param="image",
    ),
    Rule(Kind.MESSAGE_ORDER, _ORDER, REQUEST),
    Rule(Kind.MESSAGE_ORDER, status=REQUEST, code="1214"),
)

# -- who may -------------------------------------------------------------------------------------

_POLICY = (
    r"content.?(?:policy|filter|management policy)|content_filter|responsible ?ai"
    r"|(?:usage|content|safety) (?:polic(?:y|ies)|guidelines).{0,40}|safety (?:system|filter|reasons)"
    r"|flagged (?:as|by|for)|was flagged|were flagged|moderation (?:block|failed)|requires moderation"
    r"|inappropriate content|content exists risk|considered high risk|prohibited.?content"
    r"|new_sensitive|blocked by.{0,40}(?:safety|filter|guardrail|policy)|guardrail.{0,20}(?:block|interven)"
    r"|data_?inspection|不安全或敏感|敏感(?:内容|信息|词)|内容安全|违规"
)
_BROKE = (
    r"insufficient.{0,12}(?:balance|credit|quota|funds)|(?:credit|account) balance is too low|余额不足|欠费"
    r"|(?:out of|no|more|not enough|used all).{0,20}credits|credits? (?:limit|exhausted|have been)"
    r"|billing (?:hard |details|not|is|has|account)|billing.{0,20}(?:disabled|enabled|inactive)|payment required"
    r"|(?:spend|spending|usage|monthly|weekly|daily|plan).{0,3} ?(?:limit|quota|cap)s? (?:has been |was |is )?(?:reached|exceeded|hit)"
    r"|(?:reached|hit|exceeded).{0,40}(?:spending|usage|monthly|credit|plan|budget).{0,20}(?:limit|credits|cap|quota)"
    r"|arrear|account (?:is |has been )?(?:suspended|in arrears|not active|in good standing)|account in good standing"
    r"|quota (?:is |has been )?(?:exhausted|used up)|perday|recharge|top up your"
)
_BAD_KEY = (
    r"api.?key.{0,40}(?:not valid|invalid|expired|incorrect|missing|required|not found|revoked|disabled|wrong)"
    r"|(?:invalid|incorrect|missing|wrong|no|expired|unknown|bad)\b.{0,12}(?:api.?key|x-api-key|access token|auth\w* token|bearer|credentials?)"
    r"|api_key_invalid|unauthenticated|unauthorized|authentication (?:failed|required|error|fails)"
    r"|security token.{0,40}(?:invalid|expired)|signature we calculated|missing authentication"
    r"|token (?:has |is |was )?(?:expired|invalid|revoked)|unregistered callers|身份验证|无效的?(?:api|令牌|token|密钥)"
    r"|user not found|no auth credentials|login fail|not logged in"
)
ACCOUNT = (
    Rule(
        Kind.FORBIDDEN,
        r"data policy|(?:country|region|territory).{0,30}not supported|not supported in your"
        r"|user location is not supported|model_terms_required|terms.{0,20}accept"
        r"|marketplace|dont have access to the model with|not authorized to (?:perform|invoke|access)"
        r"|must be verified to use|org\w* (?:has been )?disabled",
        DENIED | {404, 451},
    ),
    Rule(Kind.RATE_LIMITED, r"quota.{0,600}(?:retry in|retrydelay|try again in) ?[:\d]", _at(429)),
    Rule(
        Kind.BILLING,
        code=r"insufficient_(?:quota|balance|credits?|funds)\w*|billing_\w+|payment_required|1113"
        r"|exceeded_current_quota\w*|usage_limit_reached|quota_exceeded|arrearage|credit\w*"
        r"|spend_limit\w*|1008|1308|1309|usage_not_included|account_deactivated",
    ),
    Rule(Kind.BILLING, _BROKE, DENIED | {402, 412, 429}),
    Rule(Kind.BILLING, r"exceeded your current quota", _at(NONE, 200, 429)),
    Rule(Kind.BILLING, status=_at(402)),
    Rule(
        Kind.AUTH,
        code=r"invalid_api_key|authentication_error|invalid_authentication\w*|unauthenticated"
        r"|unauthorized|(?:unrecognizedclient|expiredtoken|invalidsignature|incompletesignature"
        r"|missingauthenticationtoken|invalidclienttokenid)\w*|token_expired|token_invalidated"
        r"|api_key_invalid|no_api_key|100[0-4]|token_revoked",
    ),
    Rule(Kind.AUTH, _BAD_KEY, DENIED),
    Rule(
        Kind.CONTENT_POLICY,
        code=r"content_filter\w*|content_policy\w*|responsibleaipolicyviolation|moderation\w*"
        r"|data_?inspection\w*|safety\w*|prohibited_content|invalid_prompt|1301|1026|1027",
    ),
    Rule(Kind.CONTENT_POLICY, _POLICY, REQUEST | {403, 451, 500}),
)

_NO_MODEL = (
    r"model\b.{0,160}(?:does not exist|not exist|not found|is not available|is unavailable|not supported for"
    r"|has been (?:deprecated|decommissioned|retired|removed|shut ?down|discontinued)|is (?:deprecated|retired)|no longer (?:available|supported)"
    r"|end of its life|is not supported\.?$|isnt supported|is not a valid model)"
    r"|not found the model|not a valid model|no such model|model not exist|model.?not.?found"
    r"|(?:unknown|invalid|unsupported|unrecognized) model\b(?! (?:parameter|argument))|invalid model name"
    r"|model identifier is invalid|try pulling it|on-demand throughput isnt supported"
    r"|could not resolve the foundation model|deployment for this resource does not exist"
    r"|no endpoints found for|unable to access model|models?/\S+ is not found|模型不存在|未知模型"
    r"|requested model is not supported|no model (?:named|loaded|matches)|model: \S+$"
)
MODEL = (
    Rule(Kind.PARAMETER, r"no endpoints found that support tool", REQUEST, param="tools"),
    Rule(Kind.OVERLOADED, r"model.{0,60}(?:is )?(?:currently )?loading|loading model"),
    Rule(
        Kind.MODEL_NOT_FOUND,
        code=r"model_not_found|model_not_supported|model_decommissioned|modelnotfound\w*|1211|20012"
        r"|deploymentnotfound|invalid_model\w*|unknown_model|model_not_available|model_unavailable",
    ),
    Rule(Kind.MODEL_NOT_FOUND, _NO_MODEL, REQUEST | {403, 410}),
    Rule(Kind.MODEL_NOT_FOUND, code="not_found_error|resourcenotfoundexception", status=_at(NONE)),
)

# -- which field ---------------------------------------------------------------------------------

FIELDS = (
    "temperature|top_p|top_k|topP|topK|min_p|tool_choice|toolConfig|parallel_tool_calls"
    "|reasoning_effort|reasoning_format|reasoning_split|reasoning|thinking_budget|thinkingConfig"
    "|thinkingLevel|thinkingBudget|enable_thinking|thinking|think|effort|output_config|verbosity"
    "|stream_options|include_usage|max_completion_tokens|max_output_tokens|max_tokens"
    "|maxOutputTokens|response_format|stopSequences|stop_sequences|stop|seed|logprobs|user|store"
    "|metadata|service_tier|prompt_cache_key|prompt_cache_retention|cache_control|cachePoint|usage"
    "|presence_penalty|frequency_penalty|presencePenalty|frequencyPenalty|logit_bias|include"
    "|truncation|strict|context_management|anthropic-beta|system|systemInstruction|instructions"
    "|provider|transforms|plugins|n"
)
_FIELD = rf"(?P<param>{FIELDS})"
_PATH = r"(?P<param>[A-Za-z_][\w.\[\]-]*)"
_NOT = (
    r"(?:is |are |was )?(?:not (?:be )?(?:supported|allowed|permitted|valid|available|recognized"
    r"|enabled|configurable)|unsupported|deprecated|disabled|invalid|unknown|unrecognized"
    r"|unexpected|incompatible)"
)
PARAMETER = (
    Rule(
        Kind.PARAMETER,
        r"grammar|unable to generate parser|function_declarations?\[\d+\]|invalid schema for"
        r"|json schema (?:is )?(?:invalid|not)|input_schema|toolspec\.inputschema|schema.{0,30}unsupported",
        REQUEST | {500},
        param="schema",
    ),
    Rule(
        Kind.PARAMETER,
        r"support (?:the )?(?:tools?\b(?!_)|tool.?(?:use|usage|calls?|calling)|function.?call)"
        r"|tool.?(?:use|calling|calls?)s? (?:is|are) (?:not|un)|enable-auto-tool-choice"
        r"|function calling is (?:not|un)|tools? (?:param )?requires? --jinja|tools(?: field)? (?:is|are) not"
        r"|unsupported (?:param\w*): tools",
        REQUEST | {500, 501},
        param="tools",
    ),
    Rule(Kind.PARAMETER, r"developer instruction is not enabled", REQUEST, param="system"),
    Rule(Kind.PARAMETER, r"\.role does not support|role.{0,20}developer.{0,40}|unknown variant developer"
         r"|unexpected role developer", REQUEST, param="developer"),
    Rule(Kind.PARAMETER, r"(?:support )?stream mode.{0,40}enable the stream|stream=?(?: must be)? true", REQUEST, param="stream"),
    Rule(Kind.PARAMETER, r"temperature and top_p cannot both|(?P<param>top_p) and temperature", REQUEST, param="top_p"),
    Rule(Kind.PARAMETER, rf"(?:unsupported|unknown|unrecognized|unexpected|invalid|illegal|extra) (?:request )?(?:param\w*|arguments?|value|fields?|keys?|propert\w+|name|input)(?: supplied)?\W+{_PATH}", REQUEST),
    Rule(Kind.PARAMETER, rf"(?:extraneous key|property) \[?{_PATH}\]? is (?:not permitted|unsupported|not supported|not allowed)", REQUEST),
    Rule(Kind.PARAMETER, rf"doesnt support the {_PATH} field", REQUEST),
    Rule(Kind.PARAMETER, rf"loc\W+body\W+{_PATH}.{{0,160}}(?:extra_forbidden|extra inputs|not permitted)", REQUEST),
    Rule(Kind.PARAMETER, rf"extra_forbidden.{{0,80}}body\W+{_PATH}", REQUEST),
    Rule(Kind.PARAMETER, rf"{_PATH}: (?:extra inputs are not permitted|extra fields? not permitted|unknown field)", REQUEST),
    Rule(Kind.PARAMETER, rf"(?:arguments?|parameters?) (?:is |are )?not supported(?: on this model)?\W+{_PATH}", REQUEST),
    Rule(Kind.PARAMETER, rf"(?:does ?no?t|doesnt) support (?:the )?(?:param\w*|arguments?):? ?\W*{_PATH}", REQUEST),
    Rule(Kind.PARAMETER, rf"\b{_FIELD}\b(?: (?:param\w*|field|option|value|level|type|budget))?[:.]?(?: [\w.]+)? {_NOT}", REQUEST),
    Rule(Kind.PARAMETER, rf"(?:not support|unsupported|invalid|unknown|unexpected|deprecated|incompatible|dont support|doesnt support)\W.{{0,40}}?\b{_FIELD}\b", REQUEST),
    Rule(Kind.PARAMETER, rf"\b{_FIELD}\b.{{0,60}}(?:must be (?:one of|set|unset|greater|between|omitted)|may only be|can only be|cannot be|only (?:the default|\S+ is allowed)|should be|does not support|is incompatible|input should be|not enabled)", REQUEST),
    Rule(Kind.PARAMETER, rf"only (?:the default )?.{{0,30}}(?:value )?(?:is )?(?:supported|allowed) for {_FIELD}\b", REQUEST),
    Rule(Kind.PARAMETER, r"thinking (?:mode )?is (?:not|un)|works in thinking mode|support thinking|adaptive thinking", REQUEST, param="thinking"),
)
AFTER_PARAMETER = (
    Rule(Kind.CONTEXT_OVERFLOW, status=ANYWHERE, code="1210"),
    Rule(Kind.PAYLOAD_TOO_LARGE, r"payload size exceeds|exceeds the maximum size|body (?:is )?too large"
         r"|entity too large|content length.{0,20}exceed", REQUEST | {413}),
    Rule(Kind.SERVER, code="tool_use_failed"),
)

# -- what state the other side is in -------------------------------------------------------------

OVERLOAD = (
    r"overloaded|over(?:load| capacity)|at capacity|capacity (?:exceeded|constraints?|limit)|high demand"
    r"|no (?:available|healthy) (?:instances?|upstream|servers?)|server is busy|temporarily unavailable"
    r"|try again later.{0,20}busy|model is not ready|系统繁忙|服务繁忙|过载"
)
STATE = (
    Rule(Kind.OVERLOADED, code=r"(?:engine_)?overloaded\w*|modelnotready\w*|serviceunavailable\w*|unavailable|1305|1312|slow_down"),
    Rule(Kind.RATE_LIMITED, code=r"rate_?limit\w*|throttling\w*|too_?many_?requests\w*|resource_exhausted|servicequotaexceeded\w*|130[23]|1002|1039|2045", status=_at(NONE, 200, 400, 403)),
    Rule(Kind.OVERLOADED, OVERLOAD, _at(NONE, 200, 429, *range(500, 600))),
    Rule(Kind.RATE_LIMITED, r"rate.?limit|too many requests|throttl|requests per (?:min|second|hour|day)|速率限制|并发", _at(NONE, 200, 403)),
    Rule(Kind.NETWORK, r"network connection (?:was )?lost|connection (?:reset|closed|aborted|refused|error)|premature|upstream (?:connect|prematurely|disconnect)|socket hang up|econnreset|broken pipe|terminated", _at(NONE, 200)),
    Rule(Kind.SERVER, code=r"server_error|internal\w*|api_error|modelstreamerror\w*|modelerror\w*|modeltimeout\w*|timeout_error|bad_gateway|gateway_timeout|upstream_error|1234|500|unknown|deadline_exceeded", status=_at(NONE, 200, 400)),
    Rule(Kind.FORBIDDEN, code=r"permission_(?:error|denied)|accessdenied\w*|forbidden|access_denied", status=_at(NONE, 200, 400)),
    Rule(Kind.PAYLOAD_TOO_LARGE, code="request_too_large", status=_at(NONE, 200, 400)),
    Rule(Kind.MODEL_NOT_FOUND, code="not_found_error|resourcenotfoundexception", status=_at(NONE, 200)),
    Rule(Kind.BAD_REQUEST, code=r"invalid_request\w*|validationexception|invalid_argument|invalid_parameter\w*|bad_request\w*|failed_precondition|out_of_range", status=_at(NONE, 200)),
    Rule(Kind.SERVER, r"internal (?:server )?error|server error|something went wrong|timed? ?out|bad gateway", _at(NONE, 200)),
)
STATUS = (
    Rule(Kind.AUTH, status=_at(401)),
    Rule(Kind.FORBIDDEN, status=_at(403, 407, 451)),
    Rule(Kind.WRONG_PATH, status=_at(404, 405, 410)),
    Rule(Kind.CONFLICT, status=_at(409)),
    Rule(Kind.PAYLOAD_TOO_LARGE, status=_at(413)),
    Rule(Kind.RATE_LIMITED, status=_at(429)),
    Rule(Kind.OVERLOADED, status=_at(503, 529)),
    Rule(Kind.SERVER, status=_at(408, 424, 425, 499, *range(500, 600))),
    Rule(Kind.REDIRECT, status=frozenset(range(300, 400))),
    Rule(Kind.BAD_REQUEST, status=frozenset(range(400, 500))),
    Rule(Kind.UNKNOWN),
)

RULES: tuple[Rule, ...] = (
    *TOO_MUCH_AT_ONCE,
    *SHAPE,
    *OUTPUT,
    *CONTEXT,
    *CONVERSATION,
    *ACCOUNT,
    *MODEL,
    *PARAMETER,
    *AFTER_PARAMETER,
    *STATE,
    *STATUS,
)
